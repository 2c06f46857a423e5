"""The state of one judge request over its attempts; every change of it is made here."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from zerowait.client.endpoint_state import PooledEndpoint
from zerowait.client.limits.breaker import TRIPS_AT, Breaker
from zerowait.client.limits.quota import Reservation
from zerowait.errors import ZerowaitError
from zerowait.events import FailedAttempt


class FormRefusedError(ZerowaitError):
    """The endpoint does not enforce the form of the answer; the same is asked by the prompt alone.

    Args:
        endpoint: its name.
        why: the endpoint's words.
    """

    def __init__(self, endpoint: str, why: str) -> None:
        super().__init__(why)
        self.endpoint = endpoint


@dataclass(slots=True, eq=False)
class RequestCounts:
    """What one judgement took, over all its requests, answered or not.

    Args:
        attempts: requests sent, hedged copies included.
        queue_s: seconds spent waiting for a slot or for quota.
        hedges: of the attempts, the hedged copies.
        endpoint: the name of the one that was asked last.
        status: of the last failed attempt over HTTP; 0 without one.
        failed: receives the attempts that brought no answer; None keeps none.
    """

    attempts: int = 0
    queue_s: float = 0.0
    hedges: int = 0
    endpoint: str = ""
    status: int = 0
    failed: list[FailedAttempt] | None = None


@dataclass(slots=True, eq=False)
class RequestState:
    """How far a judge request has come; `end` gives back what it holds.

    Args:
        endpoint: where it is sent; it counts in that endpoint's load.
        body: the encoded chat request.
        allowed_s: how long it may take in all, in seconds from the first send.
        on_sent: called at the first send; None calls nothing.
        counts: `end` adds its attempts and its time in our queues; None adds them nowhere.
        form: of the answer that the endpoint is asked to enforce; empty for none.
        reservation: its share of the endpoint's quota for the next send; None: not reserved yet.
        deadline_s: on the loop's clock; infinite until the first send, or until it first waits for
            an open circuit breaker.
        unavailable_since_s: when it first waited for an open circuit breaker; infinite before.
        queue_s: seconds spent in our own queues.
        sends: requests sent, hedged copies included.
        copies: of these, the hedged copies.
        attempt: the number of the next attempt, from 1.
        free: attempts that do not count, because an outage explains their failure.
        resent: whether the one free resend after a stale connection was used.
        wait_s: seconds to wait before the next attempt.
        rejected: whether the last attempt was rejected because too much was in flight.
        sent_s: when the last attempt was sent.
        others: requests in flight when the last attempt was sent.
        own_failures: attempts that failed while other requests were answered.
        was_passed: whether one that was sent after it was answered while it was rejected.
        suspected_by: the circuit breaker that watches whether other requests are answered.
        doubtful_s: when the attempt was sent whose failure may be its endpoint's, so that a health
            check goes first; -inf for none.
    """

    endpoint: PooledEndpoint
    body: bytes
    allowed_s: float
    on_sent: Callable[[], None] | None = None
    counts: RequestCounts | None = None
    form: str = ""
    reservation: Reservation | None = None
    deadline_s: float = math.inf
    unavailable_since_s: float = math.inf
    queue_s: float = 0.0
    sends: int = 0
    copies: int = 0
    attempt: int = 1
    free: int = 0
    resent: bool = False
    wait_s: float = 0.0
    rejected: bool = False
    sent_s: float = 0.0
    others: int = 0
    own_failures: int = 0
    was_passed: bool = False
    suspected_by: Breaker | None = None
    doubtful_s: float = -math.inf

    def __post_init__(self) -> None:
        self.endpoint.state.load.add(1)

    def move(self, endpoint: PooledEndpoint) -> None:
        """Go on at another endpoint."""
        self.release_reservation()
        self.endpoint.state.load.add(-1)
        self.endpoint = endpoint
        endpoint.state.load.add(1)

    def end(self) -> None:
        """Give back what the request holds; it has an outcome, or was cancelled."""
        if self.suspected_by is not None:
            self._forget()
        if self.reservation is not None:
            self.release_reservation()
        self.endpoint.state.load.add(-1)
        if self.counts is not None:
            self.counts.attempts += self.sends
            self.counts.queue_s += self.queue_s
            self.counts.hedges += self.copies
            if self.sends:
                self.counts.endpoint = self.endpoint.target.name

    def try_reserve(self, *, has_slot: bool = False) -> bool:
        """Whether its share of the endpoint's quota is reserved; takes it if it is free now."""
        if self.reservation is None:
            quota = self.endpoint.state.quota
            self.reservation = quota.try_reserve(self.body, has_slot=has_slot)
        return self.reservation is not None

    async def reserve(self, *, has_slot: bool = False) -> None:
        """Wait for its share of the endpoint's quota.

        Args:
            has_slot: it holds a slot already, so it goes ahead of those that do not.
        """
        quota = self.endpoint.state.quota
        self.reservation = await quota.reserve(self.body, has_slot=has_slot)

    def renew_reservation(self) -> bool:
        """Whether the reservation holds: a quota may have become known after it was made."""
        quota, reservation = self.endpoint.state.quota, self.reservation
        if reservation is None or quota.is_current(reservation):
            return True
        quota.give_back(reservation)
        self.reservation = quota.try_reserve(self.body, has_slot=True)
        return self.reservation is not None

    def release_reservation(self) -> None:
        """Give its share of the quota back to others."""
        if self.reservation is not None:
            self.endpoint.state.quota.give_back(self.reservation)
            self.reservation = None

    def start_deadline(self, now_s: float) -> None:
        """The deadline counts from `now_s`, unless it began earlier."""
        if self.deadline_s == math.inf:
            self.deadline_s = now_s + self.allowed_s

    def start_waiting(self, now_s: float) -> None:
        """It waits for an open circuit breaker, which its deadline covers."""
        self.start_deadline(now_s)
        self.unavailable_since_s = min(self.unavailable_since_s, now_s)

    def add_queue_time(self, wait_s: float) -> None:
        """Time in our own queues is not the judge's: it moves the deadline."""
        self.queue_s += wait_s
        self.deadline_s += wait_s

    def take_wait_s(self) -> float:
        """The seconds that the last failure asks to wait; from now on 0."""
        wait_s, self.wait_s = self.wait_s, 0.0
        return wait_s

    def start_attempt(self, now_s: float) -> Reservation:
        """An attempt is sent at `now_s`; returns the quota reservation that it uses up."""
        if self.sends == 0 and self.on_sent is not None:
            self.on_sent()
        self.sends += 1
        self.sent_s = now_s
        reservation, self.reservation = self.reservation or Reservation(0.0), None
        return reservation

    def spend_reservation(self) -> Reservation:
        """Its share of the quota, for a health check in its place: it needs another one then."""
        reservation, self.reservation = self.reservation or Reservation(0.0), None
        return reservation

    def add_copies(self, copies: int) -> None:
        """So many hedged copies were sent besides."""
        self.sends += copies
        self.copies += copies

    def end_attempt(self, *, others: int) -> None:
        """The attempt failed; `others` were in flight when it was sent."""
        self.others = others

    def suspect(self, breaker: Breaker, *, rejected: bool) -> None:
        """It failed; `breaker` finds out whether other requests are answered at its endpoint."""
        if self.suspected_by is not None:
            self._forget()
        self.suspected_by = breaker
        breaker.suspect(self, self.sent_s, others=self.others if rejected else None)

    def resend(self) -> None:
        """It is sent again at once and for free, once: its connection was stale."""
        self.wait_s, self.rejected, self.resent = 0.0, False, True

    def retry(self, wait_s: float, *, rejected: bool, counted: bool) -> None:
        """It is sent again after `wait_s` seconds.

        Args:
            wait_s: at least 0.
            rejected: it was rejected because too much was in flight.
            counted: whether the failed attempt counts against the allowed attempts.
        """
        self.wait_s, self.rejected = wait_s, rejected
        self.attempt += 1
        self.free += not counted

    def doubt(self, *, attempts: int) -> None:
        """It failed as at an endpoint that is down, and no other request shows that it is up.

        After three such failures a health check has to. A single request does not open the circuit
        breaker, and would use up its `attempts` in an outage.
        """
        counted = self.attempt - 1 - self.free
        if self.own_failures == 0 and counted >= min(TRIPS_AT, attempts - 1):
            self.doubtful_s = self.sent_s

    def checked(self, *, was_open: bool) -> None:
        """A health check found its endpoint well: its failures are its own, but for an outage.

        Args:
            was_open: the circuit breaker was open until now: an outage may explain them.
        """
        self.doubtful_s = -math.inf
        self.own_failures += not was_open

    def _forget(self) -> None:
        """Whether other requests are answered does not matter any more."""
        if self.suspected_by is not None:
            self.suspected_by.forget(self)
            self.suspected_by = None
