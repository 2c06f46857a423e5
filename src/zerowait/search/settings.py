"""Settings of the search agent and its retriever, checked at construction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from zerowait.errors import ConfigError, did_you_mean

_URL = "http://127.0.0.1:8000/retrieve"


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        named = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number
        named = False
    if not named:
        raise ValueError(f"url must be like http://127.0.0.1:8000/retrieve, not {url!r}")


class RetrieverSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Address, deadlines and limits of the retriever client.

    Args:
        url: the full URL of a ``/retrieve`` in the form of Search-R1.
        topk: passages for each query.
        timeout_s: seconds for one request.
        deadline_s: seconds for one query, retries and queueing included.
        concurrency: maximal requests in flight. Further queries are queued until a request returns
            and then sent together.
        batch: maximal queries in one request.
        remember: number of answered queries in the LRU cache, with at most 64 million characters;
            0 for no cache.
    """

    url: str = _URL
    topk: int = 3
    timeout_s: float = 10.0
    deadline_s: float = 30.0
    concurrency: int = 32
    batch: int = 64
    remember: int = 10_000

    def __post_init__(self) -> None:
        _check_url(self.url)
        for name in ("topk", "concurrency", "batch"):
            _at_least(name, getattr(self, name), 1)
        _at_least("remember", self.remember, 0)
        for name in ("timeout_s", "deadline_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be above 0, not {value}")


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of an episode, and the markers of observations.

    Args:
        do_search: False executes no search: the first turn is the last.
        max_turns: turns that may search; one more follows, in which a search is not executed.
        max_turn_length: maximal tokens of one turn of the model.
        max_obs_length: maximal tokens of one observation, its markers included.
        queries_per_search: above 1, each line of a search is a query, up to this many.
        max_failed: maximal share of failed searches in a step, in (0, 1]; after two steps in a row
            above it the trainer modes ``zerowait...`` stop; 1 never stops.
        start_marker, end_marker: texts around the passages in the response.
        retriever: the retriever client's settings.
    """

    do_search: bool = True
    max_turns: int = 2
    max_turn_length: int = 500
    max_obs_length: int = 500
    queries_per_search: int = 1
    max_failed: float = 0.5
    start_marker: str = "<information>"
    end_marker: str = "</information>"
    retriever: RetrieverSettings = RetrieverSettings()

    def __post_init__(self) -> None:
        for name in ("max_turn_length", "max_obs_length", "queries_per_search"):
            _at_least(name, getattr(self, name), 1)
        _at_least("max_turns", self.max_turns, 0)
        if not 0 < self.max_failed <= 1:
            raise ValueError(f"max_failed must be in (0, 1], not {self.max_failed}")
        if not self.start_marker.strip() or not self.end_marker.strip():
            raise ValueError("start_marker and end_marker must not be blank")


def settings_from(given: Mapping[str, Any]) -> SearchSettings:
    """The settings in a mapping of plain values.

    Raises:
        ConfigError: a key is unknown (names the nearest one), or a value is not possible.

    >>> settings_from({"max_turns": 4, "retriever": {"topk": 5}}).retriever.topk
    5
    """
    _check_keys(given, SearchSettings, "search")
    nested = given.get("retriever")
    if isinstance(nested, Mapping):
        _check_keys(nested, RetrieverSettings, "search.retriever")
    try:
        return msgspec.convert(given, SearchSettings)
    except (msgspec.ValidationError, ValueError) as error:
        raise ConfigError(f"search: {error}") from None


def _check_keys(given: Mapping[str, Any], struct: type[msgspec.Struct], where: str) -> None:
    known = struct.__struct_fields__
    for key in given:
        if key not in known:
            raise ConfigError(f"{where} has no key {key!r}{did_you_mean(str(key), known)}")
