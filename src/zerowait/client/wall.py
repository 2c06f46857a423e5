"""What 429s teach: how many requests a provider accepts, and when to ask for more. Pure."""

from __future__ import annotations

import math
from typing import Final

from zerowait.client.limiter import Sample

LONGEST_PATIENCE_S: Final = 4.0
LONGEST_RETRY_AFTER_S: Final = 60.0
_SAME_WALL: Final = 0.1
_BEYOND: Final = 1.05


class Wall:
    """The number of requests beyond which the provider answered 429.

    A 429 is a measurement, not a punishment: what is still unanswered when it comes was accepted.
    The 429s of requests that were sent before the last one was noticed belong to the same
    measurement, and can only make it more exact.
    """

    def __init__(self) -> None:
        self.height: int | None = None
        self._noticed_s = -math.inf
        self._probe_from_s = -math.inf
        self._hits = 0
        self._left_since = 0

    def hit(self, sample: Sample, *, latency_s: float) -> int:
        """How many requests were accepted when the overloaded `sample` came back, at least 1."""
        if sample.sent_s < self._noticed_s:
            # accepted then, whether they are unanswered still or have ended since
            accepted = max(1, sample.on_wire + self._left_since)
            self.height = min(self.height or accepted, accepted)
        else:
            accepted = max(1, sample.on_wire)
            self._hits = self._hits + 1 if self._is_known(accepted) else 0
            self.height = accepted
            self._noticed_s = sample.ended_s
            self._left_since = 0
        patience_s = min(LONGEST_PATIENCE_S, latency_s * 2.0 ** min(self._hits, 6))
        named_s = min(LONGEST_RETRY_AFTER_S, sample.retry_after_s)
        hold_s = sample.ended_s + max(patience_s, named_s)
        self._probe_from_s = max(self._probe_from_s, hold_s)
        return accepted

    def left(self) -> None:
        """A request that had been accepted has ended."""
        self._left_since += 1

    def may_probe(self, sample: Sample) -> bool:
        """Whether the success `sample` is a reason to ask for more than now."""
        return sample.sent_s >= self._noticed_s and sample.ended_s >= self._probe_from_s

    def is_behind(self, limit: float) -> bool:
        """Whether `limit` has passed the wall, or there is none: capacity has come back."""
        if self.height is not None and limit <= _BEYOND * self.height + 1:
            return False
        self._hits = 0
        return True

    def is_near(self, limit: float) -> bool:
        """Whether the wall, and not a queue, is what bounds a limit of `limit`."""
        return self.height is not None and limit >= 0.8 * self.height

    def _is_known(self, accepted: int) -> bool:
        return (
            self.height is not None and abs(accepted - self.height) <= _SAME_WALL * self.height + 1
        )
