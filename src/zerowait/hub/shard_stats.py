"""The statistics of a hub's shards as those of one hub."""

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
"""One account, one model and one worst loop, however many look at it."""


def merged_stats(parts: Sequence[Stats]) -> Stats:
    """What several shards did, as one snapshot; the only one as it is.

    Counts, slots and limits are sums. ``peak_in_flight`` is therefore the most that there can have
    been at once, since the shards' peaks need not fall together. Latencies are means of the
    quantiles of the shards that had answers, weighted by their requests. Model changes, the budget
    and the loop's lag are the largest that a shard tells. Anchors and alarms are the first shard's,
    which looks after them for all.
    """
    if len(parts) == 1:
        return parts[0]
    slowest = max(parts, key=lambda part: part.loop_lag_p99_s)
    known = {name: _largest(getattr(part, name) for part in parts) for name in _LARGEST}
    known |= {name: _weighted(parts, name) for name in _LATENCIES}
    return msgspec.structs.replace(
        _summed(parts),
        abstentions=_counts(part.abstentions for part in parts),
        reasons=most_first(_counts(part.reasons for part in parts)),
        limits=_counts(part.limits for part in parts),
        judges=_by_name([part.judges for part in parts]),
        components=_by_name([part.components for part in parts]),
        loop_blocked_by=slowest.loop_blocked_by,
        **known,
    )


def _summed(parts: Sequence[CountedT]) -> CountedT:
    """The numbers that every part has, added up."""
    names = [
        name
        for name in parts[0].__struct_fields__
        if all(isinstance(getattr(part, name), int | float) for part in parts)
    ]
    sums = {name: sum(getattr(part, name) for part in parts) for name in names}
    return msgspec.structs.replace(parts[0], **sums)


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _weighted(parts: Sequence[Stats], name: str) -> float:
    """A shard without an answer has no latency, and a 0 for it."""
    known = [(part.requests or 1, value) for part in parts if (value := getattr(part, name))]
    weights = sum(weight for weight, _ in known)
    return sum(weight * value for weight, value in known) / weights if known else 0.0


def _counts(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(sorted(total.items()))


def most_first(counts: Mapping[str, int]) -> dict[str, int]:
    """`counts` with the greatest first."""
    return dict(Counter(counts).most_common())


def _by_name(parts: Sequence[Mapping[str, JudgeStats]]) -> dict[str, JudgeStats]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: _summed([part[name] for part in parts if name in part]) for name in names}
