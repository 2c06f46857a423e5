"""Counts of what an engine did, kept by listening to its events."""

from __future__ import annotations

from collections import Counter, deque

import msgspec

from zerowait.events import (
    Event,
    JudgementSettled,
    RequestEnded,
    RequestRetried,
    RewardSettled,
    StoreFailed,
)
from zerowait.types import Abstain

_LATENCIES_KEPT = 4096


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen snapshot of an engine.

    Args:
        submitted: samples handed in. settled: samples whose reward is known.
        abstained: settled samples without a value.
        asked: judgements for which a judge was asked. cached: answered from the cache.
        joined: identical to a judgement in flight, and answered with it.
        requests: HTTP attempts that ended. retries: attempts beyond the first.
        store_failures: reads and writes of the cache that failed.
        abstentions: judgements that were not reached, by kind.
        prompt_tokens, completion_tokens: as the judges reported them.
        in_flight: requests being answered now. waiting: requests in line for a slot.
        peak_in_flight: the most requests in flight so far. limit: the concurrency limit now.
        latency_p50_s, latency_p95_s, latency_p99_s: of the latest answered attempts.
        loop_lag_p99_s: how late the engine's loop ran, over about the last ten minutes.
        loop_blocked_by: the function that blocked it last, or blocks it now; empty for none.
    """

    submitted: int = 0
    settled: int = 0
    abstained: int = 0
    asked: int = 0
    cached: int = 0
    joined: int = 0
    requests: int = 0
    retries: int = 0
    store_failures: int = 0
    abstentions: dict[str, int] = {}
    prompt_tokens: int = 0
    completion_tokens: int = 0
    in_flight: int = 0
    waiting: int = 0
    peak_in_flight: int = 0
    limit: int = 0
    latency_p50_s: float = 0.0
    latency_p95_s: float = 0.0
    latency_p99_s: float = 0.0
    loop_lag_p99_s: float = 0.0
    loop_blocked_by: str = ""

    @property
    def hit_rate(self) -> float:
        """Share of judgements that nobody had to be asked for, in [0, 1]."""
        total = self.asked + self.cached + self.joined
        return (self.cached + self.joined) / total if total else 0.0


class Tally:
    """A listener that counts; `snapshot` is what it counted."""

    def __init__(self) -> None:
        self.submitted = 0
        self._settled = self._abstained = self._requests = self._retries = 0
        self._store_failures = 0
        self._prompt_tokens = self._completion_tokens = 0
        self._sources: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        self._latencies: deque[float] = deque(maxlen=_LATENCIES_KEPT)

    def __call__(self, event: Event) -> None:
        """Count one event."""
        match event:
            case RewardSettled(reward=reward):
                self._settled += 1
                self._abstained += reward.value is None
            case JudgementSettled():
                self._sources[event.source] += 1
                if isinstance(event.outcome, Abstain):
                    self._kinds[event.outcome.kind.value] += 1
                if event.source == "asked":
                    self._prompt_tokens += event.prompt_tokens
                    self._completion_tokens += event.completion_tokens
            case RequestEnded():
                self._requests += 1
                if event.status == 200:
                    self._latencies.append(event.latency_s)
            case RequestRetried():
                self._retries += 1
            case StoreFailed():
                self._store_failures += 1
            case _:
                pass

    def snapshot(
        self, *, in_flight: int = 0, waiting: int = 0, peak_in_flight: int = 0, limit: int = 0
    ) -> Stats:
        """The counts so far, with the gate's state as given."""
        ordered = sorted(self._latencies)
        return Stats(
            submitted=self.submitted,
            settled=self._settled,
            abstained=self._abstained,
            asked=self._sources["asked"],
            cached=self._sources["cache"],
            joined=self._sources["joined"],
            requests=self._requests,
            retries=self._retries,
            store_failures=self._store_failures,
            abstentions=dict(sorted(self._kinds.items())),
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            in_flight=in_flight,
            waiting=waiting,
            peak_in_flight=peak_in_flight,
            limit=limit,
            latency_p50_s=quantile(ordered, 0.5),
            latency_p95_s=quantile(ordered, 0.95),
            latency_p99_s=quantile(ordered, 0.99),
        )


def quantile(ordered: list[float], q: float) -> float:
    """The value at or below which a share `q` of the sorted values lies; 0 for no values.

    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.0
    """
    if not ordered:
        return 0.0
    return ordered[max(0, min(len(ordered) - 1, round(q * len(ordered)) - 1))]
