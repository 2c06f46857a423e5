"""How episodes went, in verl's loggers: what an agent loop says under ``extra["episode"]``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from zerowait.search import StopReason
from zerowait.types import Sample
from zerowait.verl.rows import EPISODE

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
