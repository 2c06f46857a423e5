"""Capacity of the fake judge: concurrency limit, token buckets, and slowdown under load."""

from __future__ import annotations

import math

import msgspec

from zerowait.testing.script import Capacity

_ROUNDING = 1e-6  # a client that waited exactly as long as Retry-After said is admitted


class AtCapacity(msgspec.Struct, frozen=True):
    """A rejection with 429; `headers` has the Retry-After that the script allows."""

    headers: dict[str, str]


class RateBucket:
    """A token bucket that starts full.

    Args:
        name: of its x-ratelimit headers, ``requests`` or ``tokens``.
        per_minute: refill rate.
        burst_s: seconds of refill that it holds.
    """

    def __init__(self, name: str, *, per_minute: float, burst_s: float) -> None:
        self._name = name
        self._per_minute = per_minute
        self._rate = per_minute / 60.0
        self._capacity = max(self._rate * burst_s, 1.0)
        self._level = self._capacity
        self._at_s: float | None = None

    def missing_s(self, cost: float, now_s: float) -> float:
        """Seconds until `cost` can be taken; 0 when it can be taken now."""
        if self._at_s is not None:
            gained = (now_s - self._at_s) * self._rate
            self._level = min(self._level + gained, self._capacity)
        self._at_s = now_s
        # A cost above the capacity is admitted when the bucket is full; its level then is negative
        missing = min(cost, self._capacity) - self._level
        return missing / self._rate if missing > _ROUNDING else 0.0

    def take(self, cost: float) -> None:
        """Take `cost`, which `missing_s` allowed."""
        self._level -= cost

    def headers(self) -> dict[str, str]:
        """The x-ratelimit headers as of the last `missing_s`."""
        reset_s = (self._capacity - self._level) / self._rate
        return {
            f"x-ratelimit-limit-{self._name}": f"{self._per_minute:.0f}",
            f"x-ratelimit-remaining-{self._name}": str(max(math.floor(self._level), 0)),
            f"x-ratelimit-reset-{self._name}": duration(reset_s),
        }


class CapacityGate:
    """Admits requests while there is capacity; `now_s` is the loop's time."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._concurrency = capacity.concurrency
        self._knee = capacity.knee
        self._changes = list(reversed(capacity.changes))
        self._began_s: float | None = None
        self._inside = 0
        self._requests = _bucket("requests", capacity.rpm, capacity.burst_s)
        self._tokens = _bucket("tokens", capacity.tpm, capacity.burst_s)

    @property
    def full(self) -> bool:
        """Whether the next request would exceed `concurrency`."""
        return self._concurrency is not None and self._inside >= self._concurrency

    def enter(self, *, tokens: int, now_s: float) -> AtCapacity | None:
        """Admit a request: None (then `leave` must follow), or its rejection.

        Args:
            tokens: of the prompt and of the longest answer.
            now_s: the loop's time.
        """
        self._follow_changes(now_s)
        if self.full:
            wait_s = self._capacity.retry_after_s
            return AtCapacity({} if wait_s is None else {"Retry-After": f"{wait_s:g}"})
        wait_s = max(
            self._requests.missing_s(1, now_s) if self._requests else 0.0,
            self._tokens.missing_s(tokens, now_s) if self._tokens else 0.0,
        )
        if wait_s > 0:
            return AtCapacity(self.headers() | _retry_headers(wait_s))
        if self._requests:
            self._requests.take(1)
        if self._tokens:
            self._tokens.take(tokens)
        self._inside += 1
        return None

    def leave(self) -> None:
        """End an admitted request."""
        self._inside -= 1

    def slowdown(self) -> float:
        """Factor on the latency of a request that is admitted now, at least 1."""
        return 1.0 if self._knee is None else max(1.0, self._inside / self._knee)

    def headers(self) -> dict[str, str]:
        """The x-ratelimit headers; empty when there are no buckets."""
        headers: dict[str, str] = {}
        for bucket in (self._requests, self._tokens):
            if bucket:
                headers |= bucket.headers()
        return headers

    def _follow_changes(self, now_s: float) -> None:
        if self._began_s is None:
            self._began_s = now_s
        while self._changes and now_s - self._began_s >= self._changes[-1].at_s:
            change = self._changes.pop()
            self._concurrency = change.concurrency or self._concurrency
            self._knee = change.knee or self._knee


def duration(seconds: float) -> str:
    """A duration as providers write it in x-ratelimit-reset headers.

    >>> duration(0.25), duration(1.5), duration(361)
    ('250ms', '1.5s', '6m1s')
    """
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest_s = divmod(seconds, 60)
    rest = f"{math.ceil(rest_s * 1000) / 1000:g}s"
    return f"{minutes:.0f}m{rest}" if minutes else rest


def _bucket(name: str, per_minute: float | None, burst_s: float) -> RateBucket | None:
    return None if per_minute is None else RateBucket(name, per_minute=per_minute, burst_s=burst_s)


def _retry_headers(wait_s: float) -> dict[str, str]:
    return {
        "Retry-After": str(math.ceil(wait_s)),
        "retry-after-ms": str(math.ceil(wait_s * 1000)),
    }
