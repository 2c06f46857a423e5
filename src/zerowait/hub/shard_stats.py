"""Statistics of a hub's shards, merged into those of one hub."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from zerowait.engine import JudgeStats, Stats

CountedT = TypeVar("CountedT", Stats, JudgeStats)

_LATENCIES: Final = ("latency_p50_s", "latency_p95_s", "latency_p99_s")
_LARGEST: Final = (
    *("budget_usd", "budget_spent_usd", "budget_reserved_usd"),
    *("validation_budget_usd", "validation_budget_spent_usd", "validation_budget_reserved_usd"),
    *("model_changes", "loop_lag_p99_s"),
)
"""Merged by maximum: all shards see the same account and models, and the slowest loop counts."""


def merged_stats(parts: Sequence[Stats]) -> Stats:
    """Statistics of several shards as one snapshot; a single one is returned unchanged.

    Counts, slots and limits are sums. So ``peak_in_flight`` is an upper bound, since the shards'
    peaks need not coincide. Latencies are means of the shards' quantiles, weighted by requests.
    Model changes, the budget and the loop's lag are the largest of any shard. Anchors and alarms
    are the first shard's, which measures them for all.

    Args:
        parts: one snapshot per shard, the first shard's first; at least one.
    """
    if len(parts) == 1:
        return parts[0]
    slowest = max(parts, key=lambda part: part.loop_lag_p99_s)
    merged = {name: _largest(getattr(part, name) for part in parts) for name in _LARGEST}
    merged |= {name: _weighted_mean(parts, name) for name in _LATENCIES}
    return msgspec.structs.replace(
        _summed(parts),
        abstentions=_counts(part.abstentions for part in parts),
        reasons=dict(Counter(_counts(part.reasons for part in parts)).most_common()),
        limits=_counts(part.limits for part in parts),
        judges=_by_name([part.judges for part in parts]),
        components=_by_name([part.components for part in parts]),
        loop_blocked_by=slowest.loop_blocked_by,
        **merged,
    )


def _summed(parts: Sequence[CountedT]) -> CountedT:
    """The first part with every numeric field replaced by the sum over all parts."""
    names = [
        name
        for name in parts[0].__struct_fields__
        if all(isinstance(getattr(part, name), int | float) for part in parts)
    ]
    sums = {name: sum(getattr(part, name) for part in parts) for name in names}
    return msgspec.structs.replace(parts[0], **sums)


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _weighted_mean(parts: Sequence[Stats], name: str) -> float:
    """The mean of a latency weighted by requests; shards without an answer, with a 0, left out."""
    latencies = [(part.requests or 1, value) for part in parts if (value := getattr(part, name))]
    weights = sum(weight for weight, _ in latencies)
    return sum(weight * value for weight, value in latencies) / weights if latencies else 0.0


def _counts(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(sorted(total.items()))


def _by_name(parts: Sequence[Mapping[str, JudgeStats]]) -> dict[str, JudgeStats]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: _summed([part[name] for part in parts if name in part]) for name in names}
