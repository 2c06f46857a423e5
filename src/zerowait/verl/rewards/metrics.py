"""What a step's rewards look like in verl's loggers: means over what was judged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from zerowait.config import RewardConfig
from zerowait.engine import ALARMS, Stats
from zerowait.search import StopReason
from zerowait.types import Abstain, Reward, Sample, Score
from zerowait.verl.rewards.rows import EPISODE


def alarm_metrics(stats: Stats) -> dict[str, int]:
    """``reward/alarm/...``: how many components had each alarm in the last finished step.

    The same keys at every step, so that a logger draws a line at 0 while all is well.

    >>> alarm_metrics(Stats(alarms_on={"saturated": 2}))["reward/alarm/saturated"]
    2
    """
    return {f"reward/alarm/{kind}": stats.alarms_on.get(kind, 0) for kind in ALARMS}


_LARGEST: Final = 1e30
_STOPS: Final = tuple(reason.value for reason in StopReason)


def episode_metrics(samples: Iterable[Sample]) -> dict[str, float]:
    """``episode/...`` of a step's responses; none where no agent loop gave an account.

    ``episode/NAME/mean`` and ``/max`` are over the episodes that say a number under that name:
    turns, searches, failed_searches, invalid_actions, and the tokens of each author as
    ``episode/AUTHOR_tokens``. ``episode/searched`` is the share that searched at all,
    ``episode/searches_failed`` the share of all searches that nobody answered, and
    ``episode/stop/REASON`` the share that ended so, 0 for a reason that did not occur.
    """
    accounts = [account for sample in samples if (account := _account(sample)) is not None]
    numbers = [_numbers(account) for account in accounts]
    metrics: dict[str, float] = {}
    for name in sorted({name for some in numbers for name in some}):
        values = [some[name] for some in numbers if name in some]
        metrics[f"episode/{name}/mean"] = math.fsum(values) / len(values)
        metrics[f"episode/{name}/max"] = max(values)
    return metrics | _of_searches(numbers) | _of_stops(accounts)


def episode_info(sample: Sample) -> dict[str, float | str]:
    """What verl logs of one response in validation, beside its reward: ``episode_searches`` ..."""
    account = _account(sample)
    if account is None:
        return {}
    info: dict[str, float | str] = {f"episode_{k}": v for k, v in _numbers(account).items()}
    if "stop" in account:
        info["episode_stop"] = str(account["stop"])
        info["episode_answered"] = float(account["stop"] == StopReason.ANSWERED)
    return info


def _account(sample: Sample) -> Mapping[str, Any] | None:
    account = sample.extra.get(EPISODE)
    return account if isinstance(account, Mapping) else None


def _numbers(account: Mapping[str, Any]) -> dict[str, float]:
    numbers = {name: number for name, v in account.items() if (number := _number(v)) is not None}
    for author, tokens in _authors(account.get("authors")):
        name = f"{author}_tokens"
        numbers[name] = numbers.get(name, 0.0) + tokens
    if "authors" in account:
        numbers.setdefault("environment_tokens", 0.0)
    return numbers


def _number(value: Any) -> float | None:
    if not isinstance(value, int | float) or not -_LARGEST <= value <= _LARGEST:
        return None
    return float(value)


def _authors(said: Any) -> list[tuple[str, float]]:
    """The stretches that are ``[author, tokens]``; another agent loop may say what it likes."""
    parts = said if isinstance(said, Sequence) and not isinstance(said, str) else ()
    return [
        (str(part[0]), tokens)
        for part in parts
        if isinstance(part, Sequence)
        and len(part) == 2
        and (tokens := _number(part[1])) is not None
    ]


def _of_searches(numbers: Sequence[Mapping[str, float]]) -> dict[str, float]:
    searches = [some["searches"] for some in numbers if "searches" in some]
    if not searches:
        return {}
    metrics = {"episode/searched": sum(count > 0 for count in searches) / len(searches)}
    failed = math.fsum(some.get("failed_searches", 0.0) for some in numbers)
    total = math.fsum(searches)
    metrics["episode/searches_failed"] = failed / total if total else 0.0
    return metrics


def _of_stops(accounts: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    stops = [str(account["stop"]) for account in accounts if "stop" in account]
    if not stops:
        return {}
    return {f"episode/stop/{why}": stops.count(why) / len(stops) for why in {*_STOPS, *stops}}


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
