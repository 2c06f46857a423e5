"""The metrics of a step: ``reward/...``, ``judge/...`` and ``val-core/...``, by name.

They are what verl's loggers get from our trainer modes, and the loggers of ``log_to`` elsewhere;
docs/reference/metrics.md lists them. NaN where there is no number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from zerowait.config import RewardConfig
from zerowait.engine.monitor.health import ALARMS
from zerowait.engine.monitor.stats import JudgeCounts, Stats
from zerowait.types import Abstain, Reward, Score


def alarm_metrics(stats: Stats) -> dict[str, int]:
    """``reward/alarm/...``: how many components had each alarm in the last finished step.

    The same keys at every step, so that a logger draws a line at 0 while all is well.

    >>> alarm_metrics(Stats(alarms_on={"saturated": 2}))["reward/alarm/saturated"]
    2
    """
    return {f"reward/alarm/{kind}": stats.alarms_on.get(kind, 0) for kind in ALARMS}


_COUNTERS: Final = {
    "judge/asked": "asked",
    "judge/retries": "retries",
    "judge/hedges": "hedges",
}
_MONOTONIC: Final = (*_COUNTERS.values(), "cached", "joined", "spent_usd")
_GAUGES: Final = {
    "judge/p50_s": "latency_p50_s",
    "judge/p95_s": "latency_p95_s",
    "judge/p99_s": "latency_p99_s",
    "judge/limit": "limit",
}
"""Fields of `Stats` that are 0 only before the first request."""


def reward_metrics(rewards: Iterable[Reward]) -> dict[str, float]:
    """``reward/...`` of a step's responses, with the same keys at every step.

    NaN where there is no number, as verl writes it. ``reward/mean`` and ``reward/std`` are over the
    rewards that have a value; ``reward/abstained`` is the share without one, in [0, 1]. Likewise
    ``reward/COMPONENT/...``; a component that was skipped counts neither as judged nor as
    abstained. ``reward/METRIC/mean`` is the mean over the rewards with that metric, such as
    ``reward/length_penalty/mean``.
    """
    rows = list(rewards)
    if not rows:
        return {}
    values = [reward.value for reward in rows if reward.value is not None]
    metrics = _mean_and_std("reward", values)
    metrics["reward/abstained"] = 1 - len(values) / len(rows)
    for name in rows[0].components:
        outcomes = [reward.components[name] for reward in rows if name in reward.components]
        judged = [outcome.value for outcome in outcomes if isinstance(outcome, Score)]
        lost = sum(isinstance(outcome, Abstain) for outcome in outcomes)
        metrics |= _mean_and_std(f"reward/{name}", judged)
        wanted = len(judged) + lost
        metrics[f"reward/{name}/abstained"] = _share(lost, of=wanted)
    return _metric_means(rows) | metrics


def _metric_means(rows: Sequence[Reward]) -> dict[str, float]:
    counted = {f"{name}/{what}" for name in rows[0].components for what in ("scored", "abstained")}
    metrics = {}
    for name in {name for row in rows for name in row.metrics} - counted:
        values = [value for row in rows if (value := row.metrics.get(name)) is not None]
        metrics[f"reward/{name}/mean"] = _mean(values)
    return metrics


def has_all_prices(config: RewardConfig) -> bool:
    """Whether every model of the judges has a price, so that their cost is known."""
    endpoints = (endpoint for judge in config.judges.values() for endpoint in judge.endpoints)
    return all(endpoint.model in config.prices for endpoint in endpoints)


def judge_metrics(before: Stats | JudgeCounts, after: Stats, *, priced: bool) -> dict[str, float]:
    """``judge/...``: counts since `before`, current latencies and limit; NaN for what is unknown.

    ``judge/repeats_saved`` counts the judgements that needed no request (from the cache, or shared
    with an identical request in flight), ``judge/hit_rate`` is their share. All counts of a step in
    which a hub was killed are unknown, because the new hub counts from 0.

    Args:
        before: snapshot, or the counts, at the end of the last step.
        after: snapshot at the end of this step.
        priced: whether every model has a price; without one ``judge/spent_usd`` is unknown.
    """
    if any(getattr(after, name) < getattr(before, name) for name in _MONOTONIC):
        unknown = [*_COUNTERS, "judge/repeats_saved", "judge/hit_rate", "judge/spent_usd"]
        return dict.fromkeys(unknown, math.nan) | _current(after)
    metrics = {k: float(getattr(after, n) - getattr(before, n)) for k, n in _COUNTERS.items()}
    saved = after.cached + after.joined - before.cached - before.joined
    judgements = saved + after.asked - before.asked
    metrics["judge/repeats_saved"] = float(saved)
    metrics["judge/hit_rate"] = _share(saved, of=judgements)
    metrics["judge/spent_usd"] = after.spent_usd - before.spent_usd if priced else math.nan
    return metrics | _current(after)


def _current(stats: Stats) -> dict[str, float]:
    measured = {key: float(getattr(stats, n)) or math.nan for key, n in _GAUGES.items()}
    return measured | {"judge/loop_lag_p99_s": stats.loop_lag_p99_s}


def coverage(sources: Sequence[str], values: Sequence[float | None]) -> dict[str, float]:
    """By data source, the mean over a validation's judged rows, and the share of rows judged.

    ``val-core/{source}/reward/mean`` is NaN where no row was judged; ``.../coverage`` is the judged
    share, in [0, 1]. Rows without a data source are of ``unknown``, as in verl.

    Args:
        sources: each row's data source; empty for none.
        values: each row's reward; None where it abstained.
    """
    found: dict[str, list[float | None]] = {}
    for source, value in zip(sources, values, strict=True):
        found.setdefault(source or "unknown", []).append(value)
    metrics: dict[str, float] = {}
    for source, some in found.items():
        judged = [value for value in some if value is not None]
        metrics[f"val-core/{source}/reward/mean"] = _mean(judged)
        metrics[f"val-core/{source}/reward/coverage"] = len(judged) / len(some)
        metrics[f"val-aux/{source}/reward/judged"] = float(len(judged))
        metrics[f"val-aux/{source}/reward/rows"] = float(len(some))
    return metrics


def _mean_and_std(name: str, values: Sequence[float]) -> dict[str, float]:
    mean = _mean(values)
    variance = _mean([(value - mean) ** 2 for value in values])
    return {f"{name}/mean": mean, f"{name}/std": math.sqrt(variance)}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _share(some: int, *, of: int) -> float:
    return some / of if of else math.nan
