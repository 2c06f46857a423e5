"""A picture of one training step: what the trainer did when, and when rewards were asked for."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from zerowait.errors import DataError
from zerowait.hub import Phase, RewardRecord, read_phases, read_rewards
from zerowait.observe.svg import LETTER_PX, Theme, legend, picture, text

ROLLOUT, LOG_PROBS, GRADIENTS, WEIGHTS, WAIT, OTHER = (
    "rollout",
    "log-probabilities",
    "gradients, update",
    "weights to rollout",
    "waits for rewards",
    "other",
)
_KINDS: Final = {
    "gen": ROLLOUT,
    "old_log_prob": LOG_PROBS,
    "ref": LOG_PROBS,
    "values": LOG_PROBS,
    "adv": GRADIENTS,
    "update_critic": GRADIENTS,
    "update_actor": GRADIENTS,
    "update_weights": WEIGHTS,
    "wait": WAIT,
}
"""What verl's phases are, by name."""
_NOT_DRAWN: Final = frozenset({"step", "testing"})
"""The whole step, and the validation that may follow it."""
_TRAINING: Final = "train"


_COLOURS: Final = {
    ROLLOUT: "#3b82f6",
    LOG_PROBS: "#10b981",
    GRADIENTS: "#8b5cf6",
    WEIGHTS: "#64748b",
    OTHER: "#94a3b8",
}
_REWARDS: Final = "the rewards of a prompt"
_REWARD_COLOUR: Final = "#f59e0b"
_LEFT, _RIGHT, _TOP = 92.0, 744.0, 48.0
_BAR = 26.0
_REWARDS_TOP: Final = _TOP + _BAR + 18
_REWARDS_HEIGHT, _LINE_MOST = 176.0, 8.0


class StepTimes(msgspec.Struct, frozen=True):
    """One training step.

    Args:
        number: of the step. began_at, ended_at: Unix times in seconds.
        phases: what the trainer did, by kind, without gaps in `began_at` order.
        groups: for each prompt, when its first reward was asked for and its last one was known.
    """

    number: int
    began_at: float
    ended_at: float
    phases: list[Phase]
    groups: list[tuple[float, float]]

    @property
    def waited_s(self) -> float:
        """Seconds in which the trainer did nothing but wait for rewards."""
        return sum(p.ended_at - p.began_at for p in self.phases if p.name == WAIT)


def read_step(folder: Path, number: int | None = None) -> StepTimes:
    """A step of the run in `folder`; without a number the last one.

    Raises:
        DataError: the run recorded no phases, or not those of this step.
    """
    steps = read_phases(folder)
    if not steps:
        raise DataError(
            f"{folder} has no times of its steps: the trainer modes zerowait, "
            "zerowait_colocate_async and zerowait_separate_async record them (waits.jsonl), "
            "verl's own modes do not"
        )
    chosen = max(steps) if number is None else number
    if chosen not in steps:
        raise DataError(f"{folder} has no step {chosen}: it has {min(steps)} to {max(steps)}")
    phases = list(_drawn(steps[chosen]))
    began, ended = min(p.began_at for p in phases), max(p.ended_at for p in phases)
    return StepTimes(chosen, began, ended, phases, _groups(read_rewards(folder), began, ended))


def step_times(connection: sqlite3.Connection, number: int) -> StepTimes:
    """The times of a step whose phases are in the index.

    Args:
        connection: from `zerowait.record.open_index`.
        number: of the step.
    """
    found = connection.execute(
        "SELECT name, began_at, ended_at FROM phases WHERE step = ? ORDER BY began_at", (number,)
    )
    phases = list(_drawn([Phase(name=name, began_at=a, ended_at=b) for name, a, b in found]))
    began, ended = min(p.began_at for p in phases), max(p.ended_at for p in phases)
    spans = connection.execute(
        "SELECT MIN(submitted_at) AS asked, MAX(settled_at) AS known FROM rewards "
        "WHERE split = ? AND current = 1 AND settled_at >= ? AND submitted_at <= ? "
        "GROUP BY COALESCE(prompt_group, ticket, row) ORDER BY asked, known",
        (_TRAINING, began, ended),
    )
    return StepTimes(number, began, ended, phases, [(asked, known) for asked, known in spans])


def _drawn(phases: Sequence[Phase]) -> Iterator[Phase]:
    """The phases by kind, those that contain waits cut there."""
    waits = sorted((p for p in phases if p.name == "wait"), key=lambda p: p.began_at)
    outer = [p for p in phases if p.name != "wait" and p.name not in _NOT_DRAWN]
    for phase in sorted(outer, key=lambda p: p.began_at):
        kind, at = _KINDS.get(phase.name, OTHER), phase.began_at
        for wait in waits:
            began = max(wait.began_at, phase.began_at)
            ended = min(wait.ended_at, phase.ended_at)
            if phase.name != "adv" or ended <= began:
                continue
            yield Phase(name=kind, began_at=at, ended_at=began)
            yield Phase(name=WAIT, began_at=began, ended_at=ended)
            at = ended
        yield Phase(name=kind, began_at=at, ended_at=phase.ended_at)


def _groups(
    records: Iterable[RewardRecord], began_at: float, ended_at: float
) -> list[tuple[float, float]]:
    """When the rewards of each prompt were open in this time, the earliest first."""
    spans: dict[str, tuple[float, float]] = {}
    for record in records:
        asked, known = record.submitted_at, record.settled_at
        if record.sample.split != _TRAINING or known < began_at or asked > ended_at:
            continue
        name = record.sample.group or record.ticket
        first, last = spans.get(name, (asked, known))
        spans[name] = min(first, asked), max(last, known)
    return sorted(spans.values())


def draw_step(step: StepTimes, theme: Theme, *, title: str) -> str:
    """The picture as SVG: the trainer's phases, and a line for each prompt's rewards.

    Args:
        step: from `read_step`.
        theme: its colours.
        title: names the run.
    """
    scale = (_RIGHT - _LEFT) / max(step.ended_at - step.began_at, 1e-9)

    def x(at: float) -> float:
        return min(max(_LEFT + (at - step.began_at) * scale, _LEFT), _RIGHT)

    lines = min(_LINE_MOST, _REWARDS_HEIGHT / max(len(step.groups), 1))
    bottom = _REWARDS_TOP + lines * len(step.groups) + 12
    lasted_s = step.ended_at - step.began_at
    heading = (
        f"{title}: step {step.number}, {lasted_s:.1f} s, of which {step.waited_s:.1f} s waited for "
        "rewards"
    )
    parts = [
        text(16, _TOP + 17, "GPU", theme.lesser),
        text(16, _REWARDS_TOP + 10, "rewards", theme.lesser),
    ]
    parts += [_bar(p, x(p.began_at), x(p.ended_at), theme) for p in step.phases]
    for place, (asked, known) in enumerate(step.groups):
        y = _REWARDS_TOP + place * lines
        parts.append(
            f'<rect x="{x(asked):.1f}" y="{y:.1f}" width="{max(x(known) - x(asked), 0.5):.1f}" '
            f'height="{lines * 0.75:.2f}" fill="{_REWARD_COLOUR}"/>'
        )
    parts += _axis(lasted_s, scale, bottom, theme)
    kinds = {p.name for p in step.phases}
    shown = [(kind, colour) for kind, colour in _COLOURS.items() if kind in kinds]
    parts += legend([*shown, (_REWARDS, _REWARD_COLOUR)], bottom + 44, theme)
    return picture(heading, parts, theme, height=bottom + 56)


def _bar(phase: Phase, left: float, right: float, theme: Theme) -> str:
    if right - left < 0.2:
        return ""
    box = f'<rect x="{left:.1f}" y="{_TOP}" width="{right - left:.1f}" height="{_BAR}" '
    if phase.name == WAIT:
        return f'{box}fill="none" stroke="{theme.lesser}" stroke-dasharray="4 3"/>'
    drawn = f'{box}fill="{_COLOURS[phase.name]}"/>'
    label = phase.name.split(",", maxsplit=1)[0]
    if right - left < LETTER_PX * len(label):
        return drawn
    return drawn + text((left + right) / 2, _TOP + 17, label, "#ffffff", anchor="middle")


def _axis(lasted_s: float, scale: float, y: float, theme: Theme) -> list[str]:
    """Seconds since the step began, at most ten of them written."""
    every = next(s for s in (1, 2, 5, 10, 30, 60, 300, 600, 10**9) if lasted_s / s <= 10)
    parts = [f'<line x1="{_LEFT}" y1="{y}" x2="{_RIGHT}" y2="{y}" stroke="{theme.line}"/>']
    for second in range(0, int(lasted_s) + 1, every):
        at = _LEFT + second * scale
        parts.append(f'<path d="M{at:.1f} {y}v4" stroke="{theme.line}"/>')
        parts.append(text(at, y + 17, f"{second} s", theme.lesser, size=11, anchor="middle"))
    return parts
