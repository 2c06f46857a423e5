"""The circuit breaker of an endpoint: when it opens, probes and closes. Pure: times are given."""

from __future__ import annotations

import math
from random import Random
from typing import Final, Protocol, TypeAlias

from zerowait.types import FailureKind

Reason: TypeAlias = tuple[FailureKind, str]
"""How the last request failed, and words for it that may be shown."""

TRIPS_AT: Final = 3
FIRST_REST_S: Final = 0.25
LONGEST_REST_S: Final = 15.0
FIRST_LOOK_S: Final = 60.0
LONGEST_LOOK_S: Final = 600.0
REST_SHARE: Final = 0.08
_JITTER: Final = 0.2
_PROBE_S: Final = 1.0
_TOGETHER_S: Final = 0.05
_STILL_PENDING: Final = 2  # rejections that are still under way are counted, too


class BreakerRequest(Protocol):
    """A request that failed; `own_failures` of its failures were followed by others' answers.

    `was_passed` says that one that was sent after it was answered while it was rejected, perhaps
    because fewer were in flight by then.
    """

    own_failures: int
    was_passed: bool


class Breaker:
    """An endpoint's circuit breaker.

    It opens when 3 requests failed without an answer between them. Then one request after the other
    is let through as a probe, with a rest of 8 % of the time since it opened in between, from
    0.25 s to 15 s, so that an outage is noticed to be over within a tenth of its length. An answer
    closes the breaker. An endpoint that names a Retry-After rests as long as it says.

    A probe that reached the endpoint and failed may have failed for reasons of its own. So the next
    one is a health check: a copy of a request that the endpoint has answered before. If that is
    answered, the requests that failed are at fault; if it gets no answer, the endpoint is down. One
    that is sent for a single request, which does not open the breaker, opens it if it fails.

    One whose account is used up is probed after 60 s, and then after twice as long each time, up to
    600 s.

    Args:
        jitter: makes each rest up to a fifth shorter, so that not all processes probe at once.
    """

    def __init__(self, *, jitter: Random | None = None) -> None:
        self._jitter = jitter or Random()
        self._answered_sent_s = -math.inf  # when the latest that was answered was sent
        # By request: when it was sent, and beside how many others
        self._suspects: dict[BreakerRequest, tuple[float, int]] = {}
        self.is_open = False
        self.is_spent = False  # it is open because the account is used up
        self.opened_s = -math.inf
        self.until_s = -math.inf  # not to be asked before
        self.named_until_s = -math.inf  # likewise, and it said so itself
        self.has_answered = False
        self.in_flight = 0
        self.reason: Reason = (FailureKind.UNREACHABLE, "not asked yet")
        self._failed: set[object] = set()
        self._look_s = FIRST_LOOK_S
        self._is_probed = False
        self.answered_body = b""  # of the request that was answered most quickly
        self._quickest_s = math.inf
        self._check_sent_s = -math.inf  # when the health check was sent that is under way
        self._needs_check = False  # the last probe may be at fault itself
        self._is_down = False  # a failure since it opened cannot be a request's fault

    def may_ask(self, now_s: float) -> bool:
        """Whether a request may be sent at `now_s`."""
        return now_s >= self.until_s

    def expected_until_s(self, patience_s: float) -> float:
        """Until when it is worth waiting for: it worked before, or it said when."""
        worked_s = self.opened_s + patience_s if self.has_answered else -math.inf
        return max(worked_s, self.named_until_s)

    def request_sent(self, now_s: float) -> None:
        """A request or health check is sent: if the breaker is open, the only probe for a while."""
        self.in_flight += 1
        if self.is_open:
            self._is_probed = True
            # a probe that is cancelled or stalls tells nothing: do not wait for it for long
            self.until_s = max(self.until_s, now_s + max(_PROBE_S, self._rest_s(now_s)))

    def request_ended(self, *, is_check: bool = False) -> bool:
        """A request or health check that was sent has ended, however that was.

        Returns whether nothing is to be heard from the endpoint before the time that it named.
        """
        self.in_flight -= 1
        if is_check:
            self._check_sent_s = -math.inf
        return self.in_flight == 0 and self.named_until_s > -math.inf

    def check_started(self, now_s: float) -> None:
        """A health check is about to be sent: no second one is needed meanwhile."""
        self._check_sent_s = now_s

    @property
    def has_check(self) -> bool:
        """Whether a health check is under way that may still tell who is at fault."""
        return self._check_sent_s > -math.inf

    def is_check_running(self, now_s: float) -> bool:
        """Whether a health check is under way; one that takes more than 15 s may hang."""
        return now_s < self._check_sent_s + LONGEST_REST_S

    def health_check_body(self, now_s: float, *, failed_s: float = -math.inf) -> bytes:
        """The body of the health check that is due now; empty: the request itself is sent.

        Args:
            now_s: when.
            failed_s: when what has failed was sent, if an answer since then has to show that the
                endpoint is not at fault.
        """
        is_needed = self._needs_check or self._answered_sent_s < failed_s
        return self.answered_body if is_needed and not self.is_check_running(now_s) else b""

    def suspect(self, request: BreakerRequest, sent_s: float, *, others: int | None = None) -> None:
        """`request` failed: for reasons of its own, if others that were sent no earlier do not.

        Args:
            request: what failed.
            sent_s: when it was sent.
            others: requests that were on the wire then, where it was rejected for their number:
                only answers beside more than that many count against it.
        """
        since_s = sent_s - _TOGETHER_S
        if others is None and self._answered_sent_s >= since_s:
            request.own_failures += 1
            return
        self._suspects[request] = since_s, 0 if others is None else others + _STILL_PENDING

    def forget(self, request: BreakerRequest) -> None:
        """`request` is sent again, or has ended."""
        self._suspects.pop(request, None)

    def succeeded(
        self,
        sent_s: float = math.inf,
        *,
        others: int = 0,
        body: bytes = b"",
        latency_s: float = math.inf,
    ) -> bool:
        """A request was answered. Returns whether the breaker was open.

        Args:
            sent_s: when it was sent.
            others: requests that were on the wire then.
            body: what was sent, to be repeated as a health check.
            latency_s: how long the answer took; the quickest one is repeated, which is cheapest.
        """
        self.has_answered = True
        if latency_s < self._quickest_s:
            self.answered_body, self._quickest_s = body, latency_s
        if sent_s < math.inf:
            self._answered_sent_s = max(self._answered_sent_s, sent_s)
        if self._is_down and self.is_open:
            self._suspects.clear()  # the outage, which is over, explains their failures
        elif self._suspects:
            for request, (since_s, beside) in list(self._suspects.items()):
                request.was_passed = request.was_passed or since_s <= sent_s
                if since_s <= sent_s and beside <= others:
                    del self._suspects[request]
                    request.own_failures += 1
        return self.close()

    def close(self) -> bool:
        """Close the breaker: the endpoint has replied. Returns whether it was open."""
        was_open, self.is_open, self.is_spent = self.is_open, False, False
        self._failed.clear()
        self.until_s = self.named_until_s = -math.inf
        self._is_probed = self._needs_check = self._is_down = False
        return was_open

    def failed(
        self,
        now_s: float,
        reason: Reason,
        *,
        retry_after_s: float = 0.0,
        by: object = None,
        is_down: bool = False,
    ) -> bool:
        """A request failed. Returns whether the breaker opens.

        Args:
            now_s: when.
            reason: its words.
            retry_after_s: the rest asked for; 0 for none.
            by: which request; one that fails several times counts once. None: it counts anyway.
            is_down: the endpoint is certainly at fault: the request did not reach it.
        """
        self.reason = reason
        self._failed.add(object() if by is None else by)
        self._is_down = self._is_down or is_down
        if not self.is_open and retry_after_s <= 0 and len(self._failed) < TRIPS_AT:
            return False
        return self._open(now_s, retry_after_s, is_down=is_down)

    def check_failed(
        self, now_s: float, reason: Reason, *, sent_s: float, retry_after_s: float = 0.0
    ) -> bool:
        """A health check failed. Returns whether the breaker opens.

        Args:
            now_s: when.
            reason: its words.
            sent_s: when it was sent: an answer since then says more than this failure.
            retry_after_s: the rest asked for; 0 for none.
        """
        if not self.is_open and self._answered_sent_s >= sent_s:
            return False
        self.reason = reason
        self._is_down = True
        return self._open(now_s, retry_after_s, is_down=True)

    def _open(self, now_s: float, retry_after_s: float, *, is_down: bool) -> bool:
        """Open the breaker, or leave it open for longer. Returns whether it was closed."""
        if self.is_open and not self._is_probed:  # what failed was sent before
            self._rest(now_s, retry_after_s, retry_after_s=retry_after_s)
            return False
        opens, self.is_open = not self.is_open, True
        if opens:
            self.opened_s = now_s
        else:
            self._needs_check = not is_down
        self.is_spent = self._is_probed = False
        self.until_s = -math.inf
        self._rest(now_s, max(retry_after_s, self._rest_s(now_s)), retry_after_s=retry_after_s)
        return opens

    def spent(self, now_s: float, reason: Reason, *, is_check: bool = False) -> bool:
        """A request was turned away because the account is used up. Returns whether it opens.

        One alone does not say so: others may be accepted, at another price or by another key. A
        health check does: it has been accepted before.
        """
        self.reason = reason
        self._failed.add(object())
        if self.is_open and not self._is_probed:  # it was sent before
            return False
        if not (self.is_open or is_check) and len(self._failed) < TRIPS_AT:
            return False
        self._look_s = min(2 * self._look_s, LONGEST_LOOK_S) if self.is_spent else FIRST_LOOK_S
        opens, self.is_open, self.is_spent = not self.is_open, True, True
        if opens:
            self.opened_s = now_s
        self._is_probed = False
        self.until_s = now_s + self._look_s
        return opens

    def rejected(
        self, now_s: float, reason: Reason, *, retry_after_s: float, firmly: bool, by: object = None
    ) -> bool:
        """A request was turned away for too much. Returns whether the breaker opens.

        Others in flight were accepted: then how many there are is the matter, which the limit
        follows, unless 3 in a row are turned away for so long that the number cannot be it.

        Args:
            now_s: when.
            reason: its words.
            retry_after_s: the rest asked for; 0 for none.
            firmly: it is no matter of a few seconds.
            by: which request, as for `failed`.
        """
        by = object() if by is None else by
        alone, in_a_row = self.in_flight == 0, len(self._failed | {by}) >= TRIPS_AT
        if self.is_open or (alone and (firmly or in_a_row)) or (firmly and in_a_row):
            return self.failed(now_s, reason, retry_after_s=retry_after_s, by=by)
        self._failed.add(by)
        return False

    def _rest_s(self, now_s: float) -> float:
        """How long no further probe is sent after one that fails now, in seconds."""
        if self.is_spent:
            return self._look_s
        share_s = REST_SHARE * (now_s - self.opened_s)
        rest_s = min(max(FIRST_REST_S, share_s), LONGEST_REST_S)
        return rest_s * (1 - self._jitter.uniform(0, _JITTER))

    def _rest(self, now_s: float, rest_s: float, *, retry_after_s: float) -> None:
        self.until_s = max(self.until_s, now_s + rest_s)
        if retry_after_s > 0:
            self.named_until_s = max(self.named_until_s, now_s + retry_after_s)
