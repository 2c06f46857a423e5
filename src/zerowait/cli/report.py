"""``zerowait report``: a run's tables, and the page that draws its record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zerowait.cli.app import app
from zerowait.cli.json_output import JsonOption, print_json
from zerowait.cli.output_file import check_output, open_output
from zerowait.cli.row_files import STANDARD_STREAM
from zerowait.cli.run_folder import check_exists, print_damage
from zerowait.cli.tables import show
from zerowait.errors import ConfigError
from zerowait.observe import (
    Report,
    alarms,
    by_step,
    comparison,
    falls,
    read_report,
    traffic,
    write_page,
)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="The run's folder, with its record.")],
    page: Annotated[bool, typer.Option(help="Also write the page.")] = True,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The page; default: report.html in the run's folder."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Show the rewards of a run by step, its judges' traffic, and why a reward fell, on a page."""
    written = (out or folder / "report.html") if page else None
    if written is not None and folder.is_dir():
        _check(written)
    check_exists(folder)
    loaded = read_report(folder)
    print_damage(loaded.damage)
    if written is not None:
        _write(folder, written)
    if as_json:
        print_json(
            {
                "folder": str(folder),
                "training": loaded.training,
                "validation": loaded.validation,
                "stats": loaded.stats,
                "falls": loaded.falls,
                "page": None if written is None else str(written),
            }
        )
        return 0
    _print(loaded)
    if written is not None:
        print(f"report: {written}")
    return 0


def _check(page: Path) -> None:
    if page == STANDARD_STREAM:
        raise ConfigError("--out FILE: the page is written into a file, so name one, not -")
    check_output("--out FILE", page)


def _print(loaded: Report) -> None:
    for rows in (by_step(loaded), comparison(loaded), traffic(loaded), alarms(loaded)):
        show(rows)
    print(*falls(loaded), sep="\n", end="\n" * bool(loaded.falls))


def _write(folder: Path, page: Path) -> None:
    """The page holds prompts and responses, so that only its owner may read it."""
    try:
        with open_output(page, mode=0o600) as file:
            write_page(folder, file)
    except OSError as error:
        raise ConfigError(
            f"--out FILE: {page} cannot be written ({error.strerror}): name another file"
        ) from None
