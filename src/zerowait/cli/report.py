"""``zerowait report``: a run's tables, and its page with the reward curve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zerowait.cli.app import app
from zerowait.cli.tables import show
from zerowait.observe import alarms, by_step, comparison, read_report, traffic, write_page


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="The run's folder, with its rewards.jsonl.")],
    page: Annotated[bool, typer.Option(help="Also write report.html and rewards.png.")] = True,
) -> int:
    """Show what a run learned, what its judge was asked, and what was waited for."""
    loaded = read_report(folder)
    for rows in (by_step(loaded), comparison(loaded), traffic(loaded), alarms(loaded)):
        show(rows)
    if page:
        print(f"report: {write_page(loaded)}")
    return 0
