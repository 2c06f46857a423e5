"""The hub's metrics in Ray's own metrics agent, which Prometheus scrapes on every node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from zerowait.engine import Stats
from zerowait.engine.monitor.prometheus import StatsMetrics

_EVERY_S: Final = 5.0

_log = logging.getLogger(__name__)


class RayMetrics:
    """Ray's counters and gauges of the same names as ``/metrics`` of ``zerowait serve``.

    Ray exports them with its prefix ``ray_``; each has the tag ``shard`` beside its own.

    Args:
        shard: index of this process's shard of the hub.
    """

    def __init__(self, shard: int) -> None:
        self._shard = str(shard)
        self._metrics: dict[str, Any] = {}
        self._counted: dict[tuple[str, ...], float] = {}

    def publish(self, stats: Stats) -> None:
        """Set the gauges, and increase the counters by what is new."""
        for family in StatsMetrics(lambda: stats).collect():
            for sample in family.samples:
                labels = {**sample.labels, "shard": self._shard}
                metric = self._metrics.get(sample.name)
                if metric is None:
                    metric = self._metrics[sample.name] = _metric(family, sample.name, labels)
                if family.type != "counter":
                    metric.set(sample.value, tags=labels)
                    continue
                key = sample.name, *labels.values()
                new = sample.value - self._counted.get(key, 0.0)
                if new > 0:
                    metric.inc(new, tags=labels)
                    self._counted[key] = sample.value


async def publish_for_ever(stats: Callable[[], Awaitable[Stats]], shard: int) -> None:
    """Publish the metrics every 5 s, until cancelled; a failure is told once and ends it.

    Args:
        stats: returns a snapshot.
        shard: index of this process's shard of the hub.
    """
    metrics = RayMetrics(shard)
    try:
        while True:
            metrics.publish(await stats())
            await asyncio.sleep(_EVERY_S)
    except Exception:  # noqa: BLE001 - metrics are no reason to lose rewards
        _log.exception("the hub's metrics are no longer given to Ray")


def _metric(family: Any, name: str, labels: dict[str, str]) -> Any:
    from ray.util.metrics import Counter, Gauge

    kind = Counter if family.type == "counter" else Gauge
    return kind(name, description=family.documentation, tag_keys=tuple(labels))
