"""The counters of all hubs that a run had, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from zerowait.hub import StatsRecord

_SUMS: Final = (
    *("submitted", "settled", "abstained", "asked", "cached", "joined", "requests", "retries"),
    *("hedges", "hedge_wins", "store_failures", "model_changes", "comparisons", "inconsistent"),
    *("prompt_tokens", "completion_tokens", "spent_usd"),
)


def all_hubs(records: Iterable[StatsRecord]) -> dict[str, Any]:
    """The last hub's counters, with what the ones before it did added to what it did.

    A run has another hub after it was resumed, or when its hub's process died. Alarms of all hubs
    are listed; what is true of a moment (limits, latencies, the budget) is the last hub's.
    """
    last = {record.hub: record.stats for record in records}
    if not last:
        return {}
    hubs = list(last.values())
    whole = dict(hubs[-1])
    if len(hubs) == 1:
        return whole
    whole |= {name: sum(hub.get(name, 0) for hub in hubs) for name in _SUMS}
    abstentions: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for hub in hubs:
        abstentions.update(hub.get("abstentions", {}))
        reasons.update(hub.get("reasons", {}))
    whole["abstentions"] = dict(sorted(abstentions.items()))
    whole["reasons"] = dict(reasons.most_common())
    whole["alarms"] = [alarm for hub in hubs for alarm in hub.get("alarms", [])]
    whole["peak_in_flight"] = max(hub.get("peak_in_flight", 0) for hub in hubs)
    return whole
