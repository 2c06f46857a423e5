"""What a step's rewards look like in verl's loggers: means over what was judged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from zerowait.engine import Stats
from zerowait.types import Abstain, Reward, Score

_COUNTED: Final = {
    "judge/asked": "asked",
    "judge/retries": "retries",
    "judge/hedges": "hedges",
    "judge/spent_usd": "spent_usd",
}
_NOW: Final = {
    "judge/p50_s": "latency_p50_s",
    "judge/p95_s": "latency_p95_s",
    "judge/p99_s": "latency_p99_s",
    "judge/limit": "limit",
    "judge/loop_lag_p99_s": "loop_lag_p99_s",
}


def reward_metrics(rewards: Iterable[Reward]) -> dict[str, float]:
    """``reward/...`` of a step's responses.

    ``reward/mean`` and ``reward/std`` are over those that have a value, and absent without any;
    ``reward/abstained`` is the share without one. Likewise for each component over what it judged;
    one that was skipped counts neither as judged nor as abstained. ``reward/METRIC/mean`` is the
    mean of what was measured of ``Reward.metrics``, such as ``reward/length_penalty/mean``.
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
        metrics[f"reward/{name}/abstained"] = lost / wanted if wanted else 0.0
    return _measured(rows) | metrics


def _measured(rows: Sequence[Reward]) -> dict[str, float]:
    counted = {f"{name}/{what}" for name in rows[0].components for what in ("scored", "abstained")}
    metrics = {}
    for name in rows[0].metrics.keys() - counted:
        values = [value for row in rows if (value := row.metrics.get(name)) is not None]
        if values:
            metrics[f"reward/{name}/mean"] = math.fsum(values) / len(values)
    return metrics


def judge_metrics(before: Stats, after: Stats) -> dict[str, float]:
    """``judge/...``: counts since `before`, latencies and the limit as they are now.

    ``judge/hit_rate`` is the share of judgements that nobody had to be asked for,
    ``judge/repeats_saved`` how many those were.
    """
    metrics = {k: float(getattr(after, n) - getattr(before, n)) for k, n in _COUNTED.items()}
    saved = after.cached + after.joined - before.cached - before.joined
    judgements = saved + after.asked - before.asked
    metrics["judge/repeats_saved"] = float(saved)
    metrics["judge/hit_rate"] = saved / judgements if judgements else 0.0
    return metrics | {key: float(getattr(after, name)) for key, name in _NOW.items()}


def over_survivors(values: Sequence[float], name: str) -> dict[str, float]:
    """Mean, maximum and minimum as ``critic/{name}/...``, verl's own keys; none without values."""
    if not values:
        return {}
    mean = math.fsum(values) / len(values)
    spread = {"mean": mean, "max": max(values), "min": min(values)}
    return {f"critic/{name}/{kind}": value for kind, value in spread.items()}


def coverage(sources: Sequence[str], values: Sequence[float | None]) -> dict[str, float]:
    """How much of a validation was judged, by data source, and the mean over what was.

    ``val-core/{source}/reward/mean`` is absent where nothing was judged; ``coverage`` is the judged
    share of the ``rows``.
    """
    found: dict[str, list[float | None]] = {}
    for source, value in zip(sources, values, strict=True):
        found.setdefault(source, []).append(value)
    metrics: dict[str, float] = {}
    for source, some in found.items():
        judged = [value for value in some if value is not None]
        if judged:
            metrics[f"val-core/{source}/reward/mean"] = math.fsum(judged) / len(judged)
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
    if not values:
        return {}
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
    return {f"{name}/mean": mean, f"{name}/std": math.sqrt(variance)}
