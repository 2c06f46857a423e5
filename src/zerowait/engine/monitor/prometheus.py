"""Prometheus metrics: an engine's statistics in the text exposition format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from zerowait.engine.monitor.health import ALARMS
from zerowait.engine.monitor.stats import Stats

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_COUNTERS: Final = {
    "submitted": "Samples submitted.",
    "settled": "Samples whose reward is known.",
    "given_up": "Samples without a reward: no longer waited for, an error, or not recorded.",
    "abstained": "Settled samples without a value.",
    "asked": "Judgements for which a judge was asked.",
    "cached": "Judgements answered from the cache.",
    "joined": "Judgements answered by an identical one in flight.",
    "requests": "HTTP attempts that ended.",
    "retries": "Attempts beyond the first.",
    "store_failures": "Reads and writes of the cache that failed.",
    "comparisons": "Pairs of responses with a verdict.",
    "inconsistent": "Of these, pairs with two contradictory answers.",
    "prompt_tokens": "Prompt tokens as the judges reported them.",
    "completion_tokens": "Completion tokens as the judges reported them.",
}
_GAUGES: Final = {
    "in_flight": "Requests being answered now.",
    "waiting": "Requests queued for a slot.",
    "peak_in_flight": "The most requests in flight so far.",
    "limit": "The concurrency limit now.",
    "loop_lag_p99_s": "How late the event loop ran, 99th percentile in seconds.",
}
_QUANTILES: Final = {"0.5": "latency_p50_s", "0.95": "latency_p95_s", "0.99": "latency_p99_s"}


class StatsMetrics:
    """A `prometheus_client` collector over an engine's statistics.

    Args:
        stats: returns a snapshot; called for each scrape.
    """

    def __init__(self, stats: Callable[[], Stats]) -> None:
        self._stats = stats

    def describe(self) -> Iterator[Metric]:
        """Nothing: what is registered before the first scrape needs no snapshot."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Every metric with its samples now."""
        stats = self._stats()
        for name, meaning in _COUNTERS.items():
            yield CounterMetricFamily(f"zerowait_{name}", meaning, value=getattr(stats, name))
        for name, meaning in _GAUGES.items():
            yield GaugeMetricFamily(f"zerowait_{name}", meaning, value=getattr(stats, name))
        yield _with_samples(
            CounterMetricFamily(
                "zerowait_abstentions",
                "Failed judgements by kind.",
                labels=["kind"],
            ),
            {(str(kind),): count for kind, count in stats.abstentions.items()},
        )
        yield _with_samples(
            CounterMetricFamily(
                "zerowait_judge_drift_alarms",
                "How often a judge drifted beyond its limit.",
                labels=["judge"],
            ),
            {(judge,): anchors.alarms for judge, anchors in stats.anchors.items()},
        )
        yield _with_samples(
            GaugeMetricFamily(
                "zerowait_judge_drift",
                "Mean difference of anchors' verdicts, share of the range.",
                labels=["judge", "against"],
            ),
            {
                (judge, against): drift.mean_abs
                for judge, anchors in stats.anchors.items()
                for against, drift in (
                    ("first", anchors.since_first),
                    ("reference", anchors.from_reference),
                )
                if drift is not None
            },
        )
        yield _with_samples(
            GaugeMetricFamily(
                "zerowait_health_alarm",
                "Components with this alarm in the last finished step.",
                labels=["kind"],
            ),
            {(kind,): stats.alarms_on.get(kind, 0) for kind in ALARMS},
        )
        yield _with_samples(
            GaugeMetricFamily(
                "zerowait_latency_seconds",
                "Latency of the latest answered attempts.",
                labels=["quantile"],
            ),
            {(quantile,): getattr(stats, field) for quantile, field in _QUANTILES.items()},
        )


def exposition(stats: Stats) -> str:
    """`stats` as text for a Prometheus scrape; every metric's name begins with ``zerowait_``.

    >>> print(exposition(Stats(asked=3)).split("zerowait_asked_total")[-1].splitlines()[0])
     3.0
    """
    registry = CollectorRegistry()
    registry.register(StatsMetrics(lambda: stats))
    return generate_latest(registry).decode()


def _with_samples(
    family: CounterMetricFamily | GaugeMetricFamily, samples: Mapping[tuple[str, ...], float]
) -> Metric:
    for labels, value in samples.items():
        family.add_metric(labels, value)
    return family
