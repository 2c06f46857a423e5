"""When a request is late enough to be sent a second time, and how often that may be. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from typing import Final

WINDOW: Final = 1024
KNOWN_AT_LEAST: Final = 100
_SAVED_AT_MOST: Final = 1024
_SUMMARY: Final = 128


class Latencies:
    """The latest 1,024 latencies, with their quantiles at hand.

    >>> latencies = Latencies()
    >>> for hundredth in range(1, 101):
    ...     latencies.add(hundredth / 100)
    >>> latencies.quantile(0.95)
    0.95
    """

    def __init__(self) -> None:
        self._by_age: deque[float] = deque()
        self._by_size: list[float] = []

    def __len__(self) -> int:
        return len(self._by_size)

    def add(self, latency_s: float) -> None:
        """Take note of one; the oldest of too many is forgotten."""
        if len(self._by_age) == WINDOW:
            del self._by_size[bisect_left(self._by_size, self._by_age.popleft())]
        self._by_age.append(latency_s)
        insort(self._by_size, latency_s)

    def quantile(self, share: float, *, longer: int = 0) -> float | None:
        """The latency that `share` do not exceed, of those known and of `longer` longer ones.

        None when only a longer one could be it.
        """
        rank = max(1, math.ceil(share * (len(self._by_size) + longer)))
        return self._by_size[rank - 1] if rank <= len(self._by_size) else None

    def summary(self) -> list[float]:
        """At most 128 of them that have the same quantiles."""
        known = self._by_size
        if len(known) <= _SUMMARY:
            return list(known)
        return [known[(2 * n + 1) * len(known) // (2 * _SUMMARY)] for n in range(_SUMMARY)]


class HedgeRule:
    """A request that has taken longer than `share` of the others may be sent again.

    Those that are late now count among the others: a request is not late where many are, and a
    whole server that slows down is not sent more. Copies are at most `extra` of the requests that
    were sent. So that these few are spent on the longest waits and not on the first that come, the
    wait is never shorter than what ``1 - extra`` of the requests take.

    Args:
        share: the quantile, in (0, 1); None when `after_s` is given.
        extra: copies per request, at most.
        after_s: a fixed wait instead of a quantile.

    Reference:
        Dean and Barroso 2013, "The tail at scale" (hedged requests).
    """

    def __init__(
        self, *, share: float | None = 0.95, extra: float = 0.05, after_s: float | None = None
    ) -> None:
        self._share = max(share or 0.0, 1.0 - extra)
        self._extra = extra
        self._fixed_s = after_s
        self._latencies = Latencies()
        self._saved = 0.0

    def observe(self, latency_s: float) -> None:
        """A first copy was answered after `latency_s`, or given up then."""
        self._latencies.add(latency_s)

    @property
    def latencies_s(self) -> list[float]:
        """What is known of the latencies, for the next process."""
        return self._latencies.summary()

    def recall(self, latencies_s: Iterable[float]) -> None:
        """These were known in an earlier process; those that come will soon outnumber them."""
        for latency_s in latencies_s:
            self._latencies.add(latency_s)

    def sent(self) -> None:
        """A request was sent for the first time, which pays for a part of a copy."""
        self._saved = min(self._saved + self._extra, max(1.0, self._extra * _SAVED_AT_MOST))

    def after_s(self, late: int) -> float | None:
        """How long a request may take until it is late, while `late` of them are; None: for ever.

        Nobody is late before 100 latencies are known.
        """
        if len(self._latencies) < KNOWN_AT_LEAST:
            return None
        ordinary_s = self._latencies.quantile(self._share, longer=late)
        if ordinary_s is None or self._fixed_s is None:
            return ordinary_s
        return max(ordinary_s, self._fixed_s)

    @property
    def copies(self) -> int:
        """How many copies the requests sent so far pay for."""
        return int(self._saved + 1e-9)

    def copied(self) -> None:
        """A copy was sent."""
        self._saved -= 1.0

    def taken_back(self) -> None:
        """A copy was turned away: it is paid back."""
        self._saved += 1.0
