"""When an endpoint is left alone, and when it is asked again. Pure: the clock is given."""

from __future__ import annotations

import math
from typing import Final

TRIPS_AT: Final = 3
FIRST_REST_S: Final = 1.0
LONGEST_REST_S: Final = 15.0


class Breaker:
    """An endpoint's circuit breaker.

    It opens when 3 requests failed without an answer between them. The endpoint rests for 1 s, then
    one request is let through as a probe: an answer closes the breaker, another failure doubles the
    rest, up to 15 s. An endpoint that names a Retry-After rests as long as it says.
    """

    def __init__(self) -> None:
        self.is_open = False
        self._failures = 0
        self._rest_s = FIRST_REST_S
        self._until_s = -math.inf
        self._is_probed = False

    def may_ask(self, now_s: float) -> bool:
        """Whether a request may be sent at `now_s`."""
        return now_s >= self._until_s

    def asked(self, now_s: float) -> None:
        """A request is sent; where the breaker is open it is the probe, and others keep away."""
        if self.is_open:
            self._is_probed = True
            # no longer than a rest: a probe that is cancelled tells nothing
            self._until_s = max(self._until_s, now_s + self._rest_s)

    def succeeded(self) -> bool:
        """The endpoint has answered. Returns whether it had been left alone."""
        was_open, self.is_open = self.is_open, False
        self._failures = 0
        self._rest_s = FIRST_REST_S
        self._until_s = -math.inf
        self._is_probed = False
        return was_open

    def failed(self, now_s: float, *, named_s: float = 0.0) -> bool:
        """A request failed; `named_s` is the rest asked for. Returns whether the breaker opens."""
        self._failures += 1
        if self.is_open and not self._is_probed:  # it was sent before
            self._until_s = max(self._until_s, now_s + named_s)
            return False
        if not self.is_open and named_s <= 0 and self._failures < TRIPS_AT:
            return False
        if self.is_open:
            self._rest_s = min(2 * self._rest_s, LONGEST_REST_S)
        opens, self.is_open = not self.is_open, True
        self._is_probed = False
        self._until_s = now_s + max(named_s, self._rest_s)
        return opens
