"""``zerowait timeline``: a picture of one training step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zerowait.cli.app import app
from zerowait.cli.json_output import JsonOption, print_json
from zerowait.cli.run_folder import check_exists
from zerowait.observe.svg import THEMES
from zerowait.observe.timeline import draw_step, read_step


@app.command()
def timeline(
    folder: Annotated[Path, typer.Argument(help="The run's folder, with its waits.jsonl.")],
    step: Annotated[int | None, typer.Option(help="The training step; default: the last.")] = None,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="NAME.svg: NAME-light.svg and NAME-dark.svg are written."),
    ] = Path("step.svg"),
    as_json: JsonOption = False,
) -> int:
    """Draw one step of a run in a `zerowait` trainer mode: rollout, rewards, gradients, update."""
    check_exists(folder)
    drawn = read_step(folder, step)
    files = []
    for name, theme in THEMES.items():
        file = out.with_name(f"{out.stem}-{name}.svg")
        file.write_text(draw_step(drawn, theme, title=folder.resolve().name), encoding="utf-8")
        files.append(str(file))
    if as_json:
        seconds: dict[str, float] = {}
        for phase in drawn.phases:
            seconds[phase.name] = seconds.get(phase.name, 0.0) + phase.ended_at - phase.began_at
        print_json({"files": files, "step": drawn.number, "seconds": seconds})
    else:
        print(*files, sep="\n")
    return 0
