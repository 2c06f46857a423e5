"""An engine's counters in the text format that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from zerowait.engine import ALARMS, Stats

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_COUNTERS: Final = {
    "submitted": "Samples handed in.",
    "settled": "Samples whose reward is known.",
    "abstained": "Settled samples without a value.",
    "asked": "Judgements for which a judge was asked.",
    "cached": "Judgements answered from the cache.",
    "joined": "Judgements answered by an identical one in flight.",
    "requests": "HTTP attempts that ended.",
    "retries": "Attempts beyond the first.",
    "store_failures": "Reads and writes of the cache that failed.",
    "comparisons": "Pairs of responses about which a verdict was reached.",
    "inconsistent": "Of these, pairs about which two answers disagreed.",
    "prompt_tokens": "Prompt tokens as the judges reported them.",
    "completion_tokens": "Completion tokens as the judges reported them.",
}
_GAUGES: Final = {
    "in_flight": "Requests being answered now.",
    "waiting": "Requests in line for a slot.",
    "peak_in_flight": "The most requests in flight so far.",
    "limit": "The concurrency limit now.",
    "loop_lag_p99_s": "How late the event loop ran, 99th percentile in seconds.",
}
_QUANTILES: Final = {"0.5": "latency_p50_s", "0.95": "latency_p95_s", "0.99": "latency_p99_s"}


def exposition(stats: Stats) -> str:
    """`stats` as a Prometheus scrape's answer; every name begins with ``zerowait_``.

    >>> print(exposition(Stats(asked=3)).split("zerowait_asked_total")[-1].splitlines()[0])
     3
    """
    return "".join(f"{line}\n" for line in _lines(stats))


def _lines(stats: Stats) -> Iterator[str]:
    for name, meaning in _COUNTERS.items():
        yield from _family(f"zerowait_{name}_total", "counter", meaning)
        yield f"zerowait_{name}_total {getattr(stats, name)}"
    for name, meaning in _GAUGES.items():
        yield from _family(f"zerowait_{name}", "gauge", meaning)
        yield f"zerowait_{name} {getattr(stats, name)}"
    name = "zerowait_abstentions_total"
    yield from _family(name, "counter", "Judgements that were not reached, by kind.")
    for kind, count in stats.abstentions.items():
        yield f'{name}{{kind="{kind}"}} {count}'
    name = "zerowait_judge_drift_alarms_total"
    yield from _family(name, "counter", "How often a judge drifted beyond its limit.")
    for judge, anchors in stats.anchors.items():
        yield f'{name}{{judge="{judge}"}} {anchors.alarms}'
    name = "zerowait_judge_drift"
    yield from _family(name, "gauge", "Mean difference of anchors' verdicts, share of the range.")
    for judge, anchors in stats.anchors.items():
        for against, drift in (
            ("first", anchors.since_first),
            ("reference", anchors.from_reference),
        ):
            if drift is not None:
                yield f'{name}{{judge="{judge}",against="{against}"}} {drift.mean_abs}'
    name = "zerowait_health_alarm"
    yield from _family(name, "gauge", "Components with this alarm in the last finished step.")
    for kind in ALARMS:
        yield f'{name}{{kind="{kind}"}} {stats.alarms_on.get(kind, 0)}'
    name = "zerowait_latency_seconds"
    yield from _family(name, "gauge", "Latency of the latest answered attempts.")
    for quantile, field in _QUANTILES.items():
        yield f'{name}{{quantile="{quantile}"}} {getattr(stats, field)}'


def _family(name: str, kind: str, meaning: str) -> Iterator[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"
