"""How far one judgement has come."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from zerowait.client.limits.breaker import Breaker
from zerowait.client.limits.quota import Reservation


@dataclass(slots=True, eq=False)
class RequestState:
    """Where a judgement is on its way.

    Args:
        body: what is sent.
        allowed_s: how long it may take, from the first send.
        sent: called at the first send.
        at: the endpoint, by its index.
        claim: its share of that endpoint's quota for the next send.
        ends_s: its deadline; infinite until the first send, or the first wait for an endpoint
            that is away.
        rests_since_s: when it first waited for an endpoint that is away.
        queue_s: time spent in our own queues.
        sends: how often it was sent, copies included.
        attempt: the next one.
        free: how many of them do not count: nobody was there to be asked.
        resent: the free resend after a stale connection was used.
        wait_s: how long the last failure asks to wait.
        refused: the last attempt was turned away because too much was in flight.
        sent_s: when the last attempt was sent.
        others: how many were on the wire then.
        own_failures: how many of its attempts failed while others were answered.
        suspected_by: the circuit breaker that watches whether others are answered now.
    """

    body: bytes
    allowed_s: float
    sent: Callable[[], None] | None = None
    at: int = 0
    claim: Reservation | None = None
    ends_s: float = math.inf
    rests_since_s: float = math.inf
    queue_s: float = 0.0
    sends: int = 0
    attempt: int = 1
    free: int = 0
    resent: bool = False
    wait_s: float = 0.0
    refused: bool = False
    sent_s: float = 0.0
    others: int = 0
    own_failures: int = 0
    suspected_by: Breaker | None = None

    def suspect(self, breaker: Breaker, *, refused: bool) -> None:
        """It failed at the endpoint of `breaker`, which tells whether others are answered there."""
        self.clear()
        self.suspected_by = breaker
        breaker.suspect(self, self.sent_s, others=self.others if refused else None)

    def clear(self) -> None:
        """It is of no more interest whether others are answered."""
        if self.suspected_by is not None:
            self.suspected_by.forget(self)
            self.suspected_by = None

    def begin(self, now_s: float) -> bool:
        """Its deadline runs from now on. Returns whether it did not before."""
        begins = self.ends_s == math.inf
        if begins:
            self.ends_s = now_s + self.allowed_s
        return begins

    def queued(self, wait_s: float) -> None:
        """Time in our own queues is not the judge's: it moves the deadline."""
        self.queue_s += wait_s
        self.ends_s += wait_s
