"""``zerowait timeline``: a picture of one training step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zerowait.cli.app import app
from zerowait.observe.timeline import THEMES, draw_step, read_step


@app.command()
def timeline(
    folder: Annotated[Path, typer.Argument(help="The run's folder, with its waits.jsonl.")],
    step: Annotated[int | None, typer.Option(help="The training step; default: the last.")] = None,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="NAME.svg: NAME-light.svg and NAME-dark.svg are written."),
    ] = Path("step.svg"),
) -> int:
    """Draw one step of a run in a `zerowait` trainer mode: rollout, rewards, gradients, update."""
    drawn = read_step(folder, step)
    for name, theme in THEMES.items():
        file = out.with_name(f"{out.stem}-{name}.svg")
        file.write_text(draw_step(drawn, theme, title=folder.resolve().name), encoding="utf-8")
        print(file)
    return 0
