"""``zerowait report``: a run's tables, and its page with the reward curve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zerowait.cli.app import app
from zerowait.cli.json_output import JsonOption, print_json
from zerowait.cli.tables import show
from zerowait.observe import alarms, by_step, comparison, read_report, traffic, write_page


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="The run's folder, with its rewards.jsonl.")],
    page: Annotated[bool, typer.Option(help="Also write report.html and rewards.png.")] = True,
    as_json: JsonOption = False,
) -> int:
    """Show the rewards of a run by step, its judges' traffic, and how long the trainer waited."""
    loaded = read_report(folder)
    if as_json:
        written = str(write_page(loaded)) if page else None
        print_json(
            {
                "folder": str(folder),
                "training": loaded.training,
                "validation": loaded.validation,
                "stats": loaded.stats,
                "page": written,
            }
        )
        return 0
    for rows in (by_step(loaded), comparison(loaded), traffic(loaded), alarms(loaded)):
        show(rows)
    if page:
        print(f"report: {write_page(loaded)}")
    return 0
