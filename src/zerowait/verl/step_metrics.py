"""What a step's rewards look like in verl's loggers: means over what was judged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from zerowait.config import RewardConfig
from zerowait.engine import Stats
from zerowait.types import Abstain, Reward, Score

_COUNTED: Final = {
    "judge/asked": "asked",
    "judge/retries": "retries",
    "judge/hedges": "hedges",
}
_NEVER_LESS: Final = (*_COUNTED.values(), "cached", "joined", "spent_usd")
_MEASURED: Final = {
    "judge/p50_s": "latency_p50_s",
    "judge/p95_s": "latency_p95_s",
    "judge/p99_s": "latency_p99_s",
    "judge/limit": "limit",
}
"""What is 0 in `Stats` before anything was asked, and never afterwards."""


def reward_metrics(rewards: Iterable[Reward]) -> dict[str, float]:
    """``reward/...`` of a step's responses.

    The same keys at every step, so that no line of a logger ends without a word; NaN where there is
    no number, as verl writes it. ``reward/mean`` and ``reward/std`` are over those that have a
    value; ``reward/abstained`` is the share without one. Likewise for each component over what it
    judged; one that was skipped counts neither as judged nor as abstained. ``reward/METRIC/mean``
    is the mean of what was measured of ``Reward.metrics``, such as ``reward/length_penalty/mean``.
    """
    rows = list(rewards)
    if not rows:
        return {}
    values = [reward.value for reward in rows if reward.value is not None]
    metrics = _spread("reward", values)
    metrics["reward/abstained"] = 1 - len(values) / len(rows)
    for name in rows[0].components:
        outcomes = [reward.components[name] for reward in rows if name in reward.components]
        judged = [outcome.value for outcome in outcomes if isinstance(outcome, Score)]
        lost = sum(isinstance(outcome, Abstain) for outcome in outcomes)
        metrics |= _spread(f"reward/{name}", judged)
        wanted = len(judged) + lost
        metrics[f"reward/{name}/abstained"] = _share(lost, of=wanted)
    return _measured(rows) | metrics


def _measured(rows: Sequence[Reward]) -> dict[str, float]:
    counted = {f"{name}/{what}" for name in rows[0].components for what in ("scored", "abstained")}
    metrics = {}
    for name in {name for row in rows for name in row.metrics} - counted:
        values = [value for row in rows if (value := row.metrics.get(name)) is not None]
        metrics[f"reward/{name}/mean"] = _mean(values)
    return metrics


def all_priced(config: RewardConfig) -> bool:
    """Whether what the judges cost is known."""
    endpoints = (endpoint for judge in config.judges.values() for endpoint in judge.endpoints)
    return all(endpoint.model in config.prices for endpoint in endpoints)


def judge_metrics(before: Stats, after: Stats, *, priced: bool) -> dict[str, float]:
    """``judge/...``: counts since `before`, latencies and the limit now; NaN for what is unknown.

    ``judge/hit_rate`` is the share of judgements that nobody had to be asked for,
    ``judge/repeats_saved`` how many those were. What was spent is unknown unless every model is
    `priced`, and so is every count of a step in which a hub was killed and counts anew.
    """
    if any(getattr(after, name) < getattr(before, name) for name in _NEVER_LESS):
        unknown = [*_COUNTED, "judge/repeats_saved", "judge/hit_rate", "judge/spent_usd"]
        return dict.fromkeys(unknown, math.nan) | _now(after)
    metrics = {k: float(getattr(after, n) - getattr(before, n)) for k, n in _COUNTED.items()}
    saved = after.cached + after.joined - before.cached - before.joined
    judgements = saved + after.asked - before.asked
    metrics["judge/repeats_saved"] = float(saved)
    metrics["judge/hit_rate"] = _share(saved, of=judgements)
    metrics["judge/spent_usd"] = after.spent_usd - before.spent_usd if priced else math.nan
    return metrics | _now(after)


def _now(stats: Stats) -> dict[str, float]:
    measured = {key: float(getattr(stats, n)) or math.nan for key, n in _MEASURED.items()}
    return measured | {"judge/loop_lag_p99_s": stats.loop_lag_p99_s}


def over_survivors(values: Sequence[float], name: str) -> dict[str, float]:
    """Mean, maximum and minimum as ``critic/{name}/...``, verl's own keys; NaN without values."""
    unknown = math.nan
    spread = {
        "mean": _mean(values),
        "max": max(values, default=unknown),
        "min": min(values, default=unknown),
    }
    return {f"critic/{name}/{kind}": value for kind, value in spread.items()}


def coverage(sources: Sequence[str], values: Sequence[float | None]) -> dict[str, float]:
    """How much of a validation was judged, by data source, and the mean over what was.

    ``val-core/{source}/reward/mean`` is NaN where nothing was judged; ``coverage`` is the judged
    share of the ``rows``.
    """
    found: dict[str, list[float | None]] = {}
    for source, value in zip(sources, values, strict=True):
        found.setdefault(source, []).append(value)
    metrics: dict[str, float] = {}
    for source, some in found.items():
        judged = [value for value in some if value is not None]
        metrics[f"val-core/{source}/reward/mean"] = _mean(judged)
        metrics[f"val-core/{source}/reward/coverage"] = len(judged) / len(some)
        metrics[f"val-aux/{source}/reward/judged"] = float(len(judged))
        metrics[f"val-aux/{source}/reward/rows"] = float(len(some))
    return metrics


def survivors_only(
    infos: Mapping[str, Sequence[Any]], sources: Sequence[str], uids: Sequence[str]
) -> tuple[dict[str, list[Any]], dict[tuple[str, str], int]]:
    """Columns of a validation without placeholders, and the accuracies that abstained.

    A reward that abstained is None, which verl leaves out. verl counts an accuracy that is missing
    as 0; the second value says how many of them are missing by abstention, by source and prompt.
    """
    columns = {name: list(column) for name, column in infos.items() if name != "judged_reward"}
    abstained = [flag == 1.0 for flag in infos["abstained"]]
    columns["reward"] = [
        None if lost else value for lost, value in zip(abstained, infos["reward"], strict=True)
    ]
    missing: dict[tuple[str, str], int] = {}
    for place, accuracy in zip(zip(sources, uids, strict=True), infos.get("acc", ()), strict=False):
        if accuracy is None:
            key = (str(place[0]), str(place[1]))
            missing[key] = missing.get(key, 0) + 1
    return columns, missing


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    mean = _mean(values)
    variance = _mean([(value - mean) ** 2 for value in values])
    return {f"{name}/mean": mean, f"{name}/std": math.sqrt(variance)}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _share(some: int, *, of: int) -> float:
    return some / of if of else math.nan
