"""Summaries of a run, one for each training or validation step, from the index of its record."""

from __future__ import annotations

import math
import sqlite3

import msgspec


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


def summarise(index: sqlite3.Connection) -> list[StepSummary]:
    """One summary for each split and step, validation of a step before its training.

    Args:
        index: from `zerowait.record.open_index`.
    """
    components, abstentions = _outcomes(index)
    exposed_s = {row["step"]: row["exposed_s"] for row in index.execute("SELECT * FROM waits")}
    found = index.execute(
        "SELECT split, step, COUNT(*) AS rows, COUNT(value) AS scored, AVG(value) AS mean, "
        "AVG(value * value) AS square, AVG(response_tokens) AS tokens FROM rewards "
        "WHERE current = 1 GROUP BY split, step ORDER BY COALESCE(step, 0), split = 'train', split"
    )
    return [
        StepSummary(
            split=row["split"],
            step=row["step"],
            rows=row["rows"],
            scored=row["scored"],
            reward=row["mean"],
            reward_std=_std(row["mean"], row["square"]),
            components=components.get((row["split"], row["step"]), {}),
            abstentions=dict(sorted(abstentions.get((row["split"], row["step"]), {}).items())),
            exposed_s=exposed_s.get(row["step"]) if row["split"] == "train" else None,
            response_tokens=row["tokens"],
        )
        for row in found
    ]


_Step = tuple[str, int | None]


def _outcomes(
    index: sqlite3.Connection,
) -> tuple[dict[_Step, dict[str, float | None]], dict[_Step, dict[str, int]]]:
    """By split and step: the mean of each component, and the abstentions by ``component/kind``."""
    means: dict[_Step, dict[str, float | None]] = {}
    abstentions: dict[_Step, dict[str, int]] = {}
    # AVG leaves out NULL, and only a score has a value
    for row in index.execute(
        "SELECT r.split AS split, r.step AS step, c.component AS component, "
        "AVG(CASE c.outcome WHEN 'score' THEN c.value END) AS mean FROM components c "
        "JOIN rewards r ON r.row = c.row WHERE r.current = 1 "
        "GROUP BY r.split, r.step, c.component ORDER BY MIN(c.rowid)"
    ):
        means.setdefault((row["split"], row["step"]), {})[row["component"]] = row["mean"]
    for row in index.execute(
        "SELECT r.split AS split, r.step AS step, c.component AS component, c.kind AS kind, "
        "COUNT(*) AS n FROM components c JOIN rewards r ON r.row = c.row "
        "WHERE r.current = 1 AND c.outcome = 'abstain' "
        "GROUP BY r.split, r.step, c.component, c.kind"
    ):
        counts = abstentions.setdefault((row["split"], row["step"]), {})
        counts[f"{row['component']}/{row['kind']}"] = row["n"]
    return means, abstentions


def _std(mean: float | None, square: float | None) -> float | None:
    """The standard deviation from the means of the values and of their squares."""
    if mean is None or square is None:
        return None
    return math.sqrt(max(square - mean**2, 0.0))


def mean(values: list[float]) -> float | None:
    """The mean, or None for no values, which is no measurement of 0."""
    return math.fsum(values) / len(values) if values else None
