"""How far one judgement has come."""

from __future__ import annotations

import math
from dataclasses import dataclass

from zerowait.client.quota import Claim


@dataclass(slots=True)
class Course:
    """Where a judgement is on its way.

    Args:
        body: what is sent.
        at: the endpoint, by its index.
        claim: its share of that endpoint's quota for the next send.
        ends_s: its deadline; infinite until the first send.
        queue_s: time spent in our own queues.
        sends: how often it was sent, copies included.
        attempt: the next one, of those that are counted.
        resent: the free resend after a stale connection was used.
        wait_s: how long the last failure asks to wait.
        refused: the last attempt was turned away because too much was in flight.
    """

    body: bytes
    at: int
    claim: Claim | None = None
    ends_s: float = math.inf
    queue_s: float = 0.0
    sends: int = 0
    attempt: int = 1
    resent: bool = False
    wait_s: float = 0.0
    refused: bool = False

    def queued(self, wait_s: float) -> None:
        """Time in our own queues is not the judge's: it moves the deadline."""
        self.queue_s += wait_s
        self.ends_s += wait_s
