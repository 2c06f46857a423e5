"""Draw what runs of the quickstart learned, and print the table of their held-out scores.

    python recipes/quickstart/curves.py runs/quickstart/seed-*
    python recipes/quickstart/curves.py RUN... --out docs/assets/quickstart.svg

``NAME-light.svg`` and ``NAME-dark.svg`` are written. The left panel has the rule's mean score on
held-out prompts at each validation. The right panel has the reward in training: pale the mean of
each step, which goes up and down because some steps have harder questions, and strong the mean of
the last 4 steps.
"""

from __future__ import annotations

import argparse
import html
import itertools
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from zerowait.errors import DataError, ZerowaitError
from zerowait.observe import StepSummary, read_report
from zerowait.observe.svg import THEMES, WIDTH, Theme, legend, picture, text

RULE = "answer"
COLOURS = ("#3b82f6", "#f59e0b", "#10b981", "#8b5cf6", "#ec4899", "#64748b")
TOP, HEIGHT, LEFT, BETWEEN, RIGHT = 64.0, 190.0, 46.0, 56.0, 16.0
PANEL = (WIDTH - LEFT - BETWEEN - RIGHT) / 2
MOST_LABELS = 8  # of steps, under a panel
SMOOTHED = 4  # steps of a mean: in so many nearly every training question is asked

Point = tuple[int, float]


class Run(NamedTuple):
    """What a run recorded: its folder's name, and means by step."""

    name: str
    held_out: list[Point]
    rewards: list[Point]


class Line(NamedTuple):
    """One line of a panel."""

    name: str
    colour: str
    points: list[Point]
    pale: bool = False
    dots: bool = False


def main() -> int:
    """Draw, and print the table."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run's folder")
    options.add_argument(
        "--out", type=Path, default=Path("runs/quickstart/curves.svg"), help="NAME.svg"
    )
    given = options.parse_args()
    try:
        runs = [read_run(folder) for folder in given.runs]
        print(*table(runs), sep="\n")
        given.out.parent.mkdir(parents=True, exist_ok=True)
        for name, theme in THEMES.items():
            file = given.out.with_name(f"{given.out.stem}-{name}.svg")
            file.write_text(draw(runs, theme), encoding="utf-8")
            print(f"picture: {file}")
    except (ZerowaitError, OSError) as error:
        print(f"curves: {error}", file=sys.stderr)
        return 2
    return 0


def read_run(folder: Path) -> Run:
    """The curves of the run in `folder`.

    Raises:
        DataError: nothing was recorded there, or no score of the rule on held-out prompts.
    """
    report = read_report(folder)
    held_out = _points(report.validation, lambda step: step.components.get(RULE))
    if not held_out:
        raise DataError(
            f"{folder} has no score of the component {RULE!r} on held-out prompts: "
            "draw runs of the quickstart, from their first validation on"
        )
    rewards = _points(report.training, lambda step: step.reward)
    return Run(folder.resolve().name.replace("-", " "), held_out, rewards)


def table(runs: Sequence[Run]) -> list[str]:
    """The rule's score on held-out prompts: a Markdown table with one row per run."""
    steps = sorted({step for run in runs for step, _ in run.held_out})
    lines = ["| rule on held-out prompts | " + " | ".join(f"step {step}" for step in steps) + " |"]
    lines.append("| --- " * (len(steps) + 1) + "|")
    for run in runs:
        scores = dict(run.held_out)
        shown = (f"{scores[step]:.3f}" if step in scores else "-" for step in steps)
        lines.append(f"| {run.name} | " + " | ".join(shown) + " |")
    return lines


def draw(runs: Sequence[Run], theme: Theme) -> str:
    """Both panels as SVG, with a line in each for each run."""
    coloured = list(zip(runs, itertools.cycle(COLOURS), strict=False))
    held_out = [Line(run.name, colour, run.held_out, dots=True) for run, colour in coloured]
    each = [Line(run.name, colour, run.rewards, pale=True) for run, colour in coloured]
    means = [Line(run.name, colour, smoothed(run.rewards)) for run, colour in coloured]
    right = LEFT + PANEL + BETWEEN
    parts = [
        *_panel(LEFT, "rule on held-out prompts", held_out, theme),
        *_panel(right, f"reward in training, mean of {SMOOTHED} steps", [*each, *means], theme),
        *legend([(run.name, colour) for run, colour in coloured], TOP + HEIGHT + 58, theme),
    ]
    heading = "SmolLM2-135M-Instruct learns to answer with the capital, and nothing after it"
    return picture(heading, parts, theme, height=TOP + HEIGHT + 72)


def smoothed(points: Sequence[Point]) -> list[Point]:
    """Each point's mean with those before it, `SMOOTHED` of them at the most.

    >>> smoothed([(1, 0.0), (2, 1.0), (3, 1.0), (4, 0.0), (5, 1.0)])[-2:]
    [(4, 0.5), (5, 0.75)]
    """
    values = [value for _, value in points]
    windows = [values[max(0, end - SMOOTHED) : end] for end in range(1, len(values) + 1)]
    return [(step, statistics.fmean(w)) for (step, _), w in zip(points, windows, strict=True)]


def _points(
    steps: Iterable[StepSummary], value: Callable[[StepSummary], float | None]
) -> list[Point]:
    """The steps that have a number and a value."""
    found = ((step.step, value(step)) for step in steps)
    return [(step, y) for step, y in found if step is not None and y is not None]


def _panel(left: float, title: str, lines: Sequence[Line], theme: Theme) -> Iterator[str]:
    """Axes with the lines in them; a dot's title is its value, which browsers show on hover."""
    points = [point for line in lines for point in line.points]
    last = max((step for step, _ in points), default=1)
    low = min([0.0, *(math.floor(y * 4) / 4 for _, y in points)])
    high = max([1.0, *(math.ceil(y * 4) / 4 for _, y in points)])

    def x(step: int) -> float:
        return left + PANEL * step / last

    def y(value: float) -> float:
        return TOP + HEIGHT * (high - value) / (high - low)

    yield text(left, TOP - 10, title, theme.lesser)
    for quarter in range(round(low * 4), round(high * 4) + 1):
        at = y(quarter / 4)
        yield f'<path d="M{left:.1f} {at:.1f}h{PANEL:.1f}" stroke="{theme.line}"/>'
        yield text(left - 8, at + 4, f"{quarter / 4:g}", theme.lesser, size=11, anchor="end")
    every = math.ceil(last / MOST_LABELS / 4) * 4
    for step in range(0, last + 1, every):
        yield text(x(step), TOP + HEIGHT + 18, str(step), theme.lesser, size=11, anchor="middle")
    yield text(left + PANEL / 2, TOP + HEIGHT + 34, "step", theme.lesser, size=11, anchor="middle")
    for line in lines:
        places = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in line.points)
        weight = 'stroke-width="1" stroke-opacity="0.4"' if line.pale else 'stroke-width="2"'
        yield f'<polyline points="{places}" fill="none" stroke="{line.colour}" {weight}/>'
        for step, value in line.points if line.dots else ():
            said = html.escape(f"{line.name}, step {step}: {value:.3f}")
            yield (
                f'<circle cx="{x(step):.1f}" cy="{y(value):.1f}" r="3.5" fill="{line.colour}">'
                f"<title>{said}</title></circle>"
            )


if __name__ == "__main__":
    sys.exit(main())
