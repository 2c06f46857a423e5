"""Summaries of a run's records, one for each training or validation step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from zerowait.hub import RewardRecord
from zerowait.types import Abstain, Score


class StepSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The rewards of one step of one split.

    Args:
        rows: number of responses. scored: how many of them have a value.
        reward, reward_std: mean and standard deviation over the scored rows; None without any.
        components: mean value of each component over the rows with a score; None without any.
        abstentions: number of abstentions by ``component/kind``.
        exposed_s: seconds that the trainer waited for the step's rewards and did nothing else;
            None in validation, and where the trainer does not measure it, as verl's own.
        response_tokens: mean over the rows that have the number; None without any.
    """

    split: str
    step: int | None
    rows: int
    scored: int
    reward: float | None
    reward_std: float | None
    components: dict[str, float | None]
    abstentions: dict[str, int]
    exposed_s: float | None
    response_tokens: float | None


def summarise(
    records: Iterable[RewardRecord], waits: Mapping[int, float] | None = None
) -> list[StepSummary]:
    """One summary for each split and step, validation of a step before its training.

    Args:
        records: of the run.
        waits: seconds that the trainer waited for rewards, by training step.
    """
    by_step: dict[tuple[str, int | None], list[RewardRecord]] = {}
    for record in records:
        by_step.setdefault((record.sample.split, record.sample.step), []).append(record)
    ordered = sorted(by_step, key=lambda key: (key[1] or 0, key[0] == "train"))
    exposed_s = waits or {}
    return [
        _summary(
            split,
            step,
            by_step[split, step],
            exposed_s.get(step) if split == "train" and step is not None else None,
        )
        for split, step in ordered
    ]


def _summary(
    split: str, step: int | None, records: list[RewardRecord], exposed_s: float | None
) -> StepSummary:
    values = [r.reward.value for r in records if r.reward.value is not None]
    names = list(records[0].reward.components)
    abstentions: Counter[str] = Counter()
    judged: dict[str, list[float]] = {name: [] for name in names}
    for record in records:
        for name, outcome in record.reward.components.items():
            if isinstance(outcome, Score):
                judged.setdefault(name, []).append(outcome.value)
            elif isinstance(outcome, Abstain):
                abstentions[f"{name}/{outcome.kind.value}"] += 1
    tokens = [float(t) for r in records if (t := r.sample.response_tokens) is not None]
    return StepSummary(
        split=split,
        step=step,
        rows=len(records),
        scored=len(values),
        reward=mean(values),
        reward_std=_std(values),
        components={name: mean(judged[name]) for name in judged},
        abstentions=dict(sorted(abstentions.items())),
        exposed_s=exposed_s,
        response_tokens=mean(tokens),
    )


def mean(values: list[float]) -> float | None:
    """The mean, or None for no values, which is no measurement of 0."""
    return math.fsum(values) / len(values) if values else None


def _std(values: list[float]) -> float | None:
    centre = mean(values)
    if centre is None:
        return None
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / len(values))
