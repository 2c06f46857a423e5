"""``zerowait export``: the record of a run as Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zerowait.cli.app import app
from zerowait.cli.json_output import JsonOption, print_json
from zerowait.cli.run_folder import opened_record
from zerowait.cli.tables import counted
from zerowait.errors import ConfigError, DataError, did_you_mean
from zerowait.record import TABLES, export_table


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="The run's folder, with its record.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the files; RUN/export.")
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option(help="Only this table; may be given several times.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Write the tables of a run's record as Parquet, one file each."""
    for name in table or ():
        if name not in TABLES:
            raise ConfigError(f"--table {name}: there is no such table{did_you_mean(name, TABLES)}")
    target = folder / "export" if out is None else out
    files: list[dict[str, str | int]] = []
    with opened_record(folder) as index:
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"--out {target} cannot be written: {error.strerror}") from None
        for name in dict.fromkeys(table or TABLES):
            path = target / f"{name}.parquet"
            files.append({"path": str(path), "rows": export_table(index, name, path)})
    if as_json:
        print_json({"files": files})
        return 0
    for file in files:
        print(f"{file['path']}: {counted(int(file['rows']), 'row')}")
    return 0
