"""``episode/...`` in verl's loggers: turns, searches and stop reasons of a step's episodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from zerowait.search import StopReason
from zerowait.types import Sample
from zerowait.verl.rows import EPISODE

_MAX_LOGGED: Final = 1e30
_REASONS: Final = tuple(reason.value for reason in StopReason)


def episode_metrics(samples: Iterable[Sample]) -> dict[str, float]:
    """``episode/...`` of a step's responses; empty if no agent loop reported an episode.

    ``episode/NAME/mean`` and ``/max`` are over the episodes that have a number under that name:
    turns, searches, failed_searches, invalid_actions, and each author's tokens as
    ``episode/AUTHOR_tokens``. ``episode/searched`` is the share of episodes that searched,
    ``episode/searches_failed`` the share of all searches that failed, and ``episode/stop/REASON``
    the share that ended for that reason, 0 for a reason that did not occur.
    """
    episodes = [episode for sample in samples if (episode := _episode_of(sample)) is not None]
    numbers = [_numbers(episode) for episode in episodes]
    metrics: dict[str, float] = {}
    for name in sorted({name for some in numbers for name in some}):
        values = [some[name] for some in numbers if name in some]
        metrics[f"episode/{name}/mean"] = math.fsum(values) / len(values)
        metrics[f"episode/{name}/max"] = max(values)
    return metrics | _search_metrics(numbers) | _stop_metrics(episodes)


def episode_info(sample: Sample) -> dict[str, float | str]:
    """The columns ``episode_...`` that verl logs beside a validation response's reward."""
    episode = _episode_of(sample)
    if episode is None:
        return {}
    info: dict[str, float | str] = {f"episode_{k}": v for k, v in _numbers(episode).items()}
    if "stop" in episode:
        info["episode_stop"] = str(episode["stop"])
        info["episode_answered"] = float(episode["stop"] == StopReason.ANSWERED)
    return info


def _episode_of(sample: Sample) -> Mapping[str, Any] | None:
    episode = sample.extra.get(EPISODE)
    return episode if isinstance(episode, Mapping) else None


def _numbers(episode: Mapping[str, Any]) -> dict[str, float]:
    numbers = {name: number for name, v in episode.items() if (number := _number(v)) is not None}
    for author, tokens in _authors(episode.get("authors")):
        name = f"{author}_tokens"
        numbers[name] = numbers.get(name, 0.0) + tokens
    if "authors" in episode:
        numbers.setdefault("environment_tokens", 0.0)
    return numbers


def _number(value: Any) -> float | None:
    if not isinstance(value, int | float) or not -_MAX_LOGGED <= value <= _MAX_LOGGED:
        return None
    return float(value)


def _authors(value: Any) -> list[tuple[str, float]]:
    """The items of the form ``[author, tokens]``; an agent loop of the user's may send others."""
    parts = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    return [
        (str(part[0]), tokens)
        for part in parts
        if isinstance(part, Sequence)
        and len(part) == 2
        and (tokens := _number(part[1])) is not None
    ]


def _search_metrics(numbers: Sequence[Mapping[str, float]]) -> dict[str, float]:
    searches = [some["searches"] for some in numbers if "searches" in some]
    if not searches:
        return {}
    metrics = {"episode/searched": sum(count > 0 for count in searches) / len(searches)}
    failed = math.fsum(some.get("failed_searches", 0.0) for some in numbers)
    total = math.fsum(searches)
    metrics["episode/searches_failed"] = failed / total if total else 0.0
    return metrics


def _stop_metrics(episodes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    stops = [str(episode["stop"]) for episode in episodes if "stop" in episode]
    if not stops:
        return {}
    return {f"episode/stop/{why}": stops.count(why) / len(stops) for why in {*_REASONS, *stops}}
