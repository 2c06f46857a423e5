"""When an endpoint is left alone, and when it is asked again. Pure: the clock is given."""

from __future__ import annotations

import math
from typing import Final, TypeAlias

from zerowait.types import FailureKind

Reason: TypeAlias = tuple[FailureKind, str]
"""What became of the last request, and words for it that may be shown."""

TRIPS_AT: Final = 3
FIRST_REST_S: Final = 1.0
LONGEST_REST_S: Final = 15.0
FIRST_LOOK_S: Final = 60.0
LONGEST_LOOK_S: Final = 600.0


class Breaker:
    """An endpoint's circuit breaker.

    It opens when 3 requests failed without an answer between them. The endpoint rests for 1 s, then
    one request is let through as a probe: an answer closes the breaker, another failure doubles the
    rest, up to 15 s. An endpoint that names a Retry-After rests as long as it says. One whose
    account is used up is looked at after 60 s, and seldomer each time, up to 600 s.
    """

    def __init__(self) -> None:
        self.is_open = False
        self.is_spent = False  # it is open because the account is used up
        self.opened_s = -math.inf
        self.until_s = -math.inf  # not to be asked before
        self.named_until_s = -math.inf  # likewise, and it said so itself
        self.has_answered = False
        self.in_flight = 0
        self.reason: Reason = (FailureKind.UNREACHABLE, "not asked yet")
        self._failures = 0
        self._rest_s = FIRST_REST_S
        self._is_probed = False

    def may_ask(self, now_s: float) -> bool:
        """Whether a request may be sent at `now_s`."""
        return now_s >= self.until_s

    def expected_until_s(self, patience_s: float) -> float:
        """Until when it is worth waiting for: it worked before, or it said when."""
        worked_s = self.opened_s + patience_s if self.has_answered else -math.inf
        return max(worked_s, self.named_until_s)

    def asked(self, now_s: float) -> None:
        """A request is sent; where the breaker is open it is the probe, and others keep away."""
        self.in_flight += 1
        if self.is_open:
            self._is_probed = True
            # no longer than a rest: a probe that is cancelled tells nothing
            self.until_s = max(self.until_s, now_s + self._rest_s)

    def left(self) -> bool:
        """A request that was sent has ended, however that was.

        Returns whether nothing is to be heard from the endpoint before the time that it named.
        """
        self.in_flight -= 1
        return self.in_flight == 0 and self.named_until_s > -math.inf

    def succeeded(self) -> bool:
        """The endpoint has answered. Returns whether it had been left alone."""
        self.has_answered = True
        return self.heard()

    def heard(self) -> bool:
        """It is there, whatever it said. Returns whether it had been left alone."""
        was_open, self.is_open, self.is_spent = self.is_open, False, False
        self._failures = 0
        self._rest_s = FIRST_REST_S
        self.until_s = self.named_until_s = -math.inf
        self._is_probed = False
        return was_open

    def failed(self, now_s: float, reason: Reason, *, named_s: float = 0.0) -> bool:
        """A request failed; `named_s` is the rest asked for. Returns whether the breaker opens."""
        self.reason = reason
        self._failures += 1
        if self.is_open and not self._is_probed:  # it was sent before
            self._rest_until(now_s + named_s, named_s)
            return False
        if not self.is_open and named_s <= 0 and self._failures < TRIPS_AT:
            return False
        if self.is_open:
            self._rest_s = min(2 * self._rest_s, LONGEST_REST_S)
        opens, self.is_open = not self.is_open, True
        if opens:
            self.opened_s = now_s
        self.is_spent = self._is_probed = False
        self.until_s = -math.inf
        self._rest_until(now_s + max(named_s, self._rest_s), named_s)
        return opens

    def spent(self, now_s: float, reason: Reason) -> bool:
        """A request was turned away because the account is used up. Returns whether it opens.

        One alone does not say so: others may be accepted, at another price or by another key.
        """
        self.reason = reason
        self._failures += 1
        if self.is_open and not self._is_probed:  # it was sent before
            return False
        if not self.is_open and self._failures < TRIPS_AT:
            return False
        self._rest_s = min(2 * self._rest_s, LONGEST_LOOK_S) if self.is_spent else FIRST_LOOK_S
        opens, self.is_open, self.is_spent = not self.is_open, True, True
        if opens:
            self.opened_s = now_s
        self._is_probed = False
        self.until_s = now_s + self._rest_s
        return opens

    def refused(self, now_s: float, reason: Reason, *, named_s: float, firmly: bool) -> bool:
        """A request was turned away for too much. Returns whether the breaker opens.

        Others in flight were accepted: then how many there are is the matter, which the limit
        follows, unless 3 in a row are turned away for so long that the number cannot be it.

        Args:
            now_s: when.
            reason: its words.
            named_s: the rest asked for; 0 for none.
            firmly: it is no matter of a few seconds.
        """
        alone, in_a_row = self.in_flight == 0, self._failures + 1 >= TRIPS_AT
        if self.is_open or (alone and (firmly or in_a_row)) or (firmly and in_a_row):
            return self.failed(now_s, reason, named_s=named_s)
        self._failures += 1
        return False

    def _rest_until(self, until_s: float, named_s: float) -> None:
        self.until_s = max(self.until_s, until_s)
        if named_s > 0:
            self.named_until_s = max(self.named_until_s, until_s)
