"""The endpoints of one judge: which one a request goes to, and waiting while none is available."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from zerowait.client.endpoint_state import BreakerQueue, PooledEndpoint
from zerowait.client.limits.breaker import LONGEST_REST_S
from zerowait.client.request_state import RequestState
from zerowait.types import Abstain

PROBE_WITHIN_S: Final = 2 * LONGEST_REST_S
"""Within this time an open circuit breaker lets a probe through."""


class EndpointPool:
    """Selects endpoints by their circuit breaker, priority, weight and load.

    Of the endpoints whose circuit breaker lets requests through, those with the lowest ``priority``
    share the requests in proportion to their ``weight``. One that is full is passed over while
    another has room.

    Args:
        endpoints: of one judge.
        patience_s: seconds for which an endpoint that worked before is waited for.
    """

    def __init__(self, endpoints: Sequence[PooledEndpoint], patience_s: float) -> None:
        self._endpoints = endpoints
        self.only = endpoints[0] if len(endpoints) == 1 else None
        """The endpoint of a judge that has one, for which there is nothing to select."""
        self._patience_s = patience_s
        self._breakers = [endpoint.state.breaker for endpoint in endpoints]
        self._breaker_queue = BreakerQueue(self._breakers)
        for endpoint in endpoints:
            endpoint.state.circuit.when_changed(partial(self._changed, endpoint))

    def first(self, now_s: float) -> PooledEndpoint:
        """Where a new request goes at `now_s`."""
        return _best(self._endpoints, now_s) or self._endpoints[0]

    def other(self, endpoint: PooledEndpoint, now_s: float) -> PooledEndpoint | None:
        """Where a request goes instead of `endpoint`; None: no other one is available."""
        return _best((each for each in self._endpoints if each is not endpoint), now_s)

    def healthy(self, now_s: float) -> PooledEndpoint | None:
        """The endpoint of a request that is to be no probe; None: all circuit breakers are open."""
        return _best((each for each in self._endpoints if not each.state.breaker.is_open), now_s)

    def ejected(self, request: RequestState, now_s: float) -> list[PooledEndpoint]:
        """Where a probe may be sent now, and which would be no worse for `request` than its own."""
        priority = request.endpoint.config.priority
        return [
            each
            for each in self._endpoints
            if each.state.breaker.is_open
            and each.state.breaker.may_ask(now_s)
            and each.config.priority <= priority
            and each is not request.endpoint
        ]

    def select_again(self, request: RequestState) -> None:
        """A circuit has changed: move the request if another endpoint ranks first now."""
        best = _best(self._endpoints, asyncio.get_running_loop().time())
        if best is not None and best is not request.endpoint:
            request.move(best)

    def _changed(self, endpoint: PooledEndpoint) -> None:
        """Let waiting requests choose again: those in queues only once the circuit has closed."""
        self._breaker_queue.release_all()
        if endpoint.state.breaker.is_open:
            return
        for each in self._endpoints:
            if each is not endpoint:
                each.state.circuit.wake()

    def rests_s(self, now_s: float) -> float:
        """Seconds until the first circuit breaker lets a request through."""
        return max(0.0, min(breaker.until_s for breaker in self._breakers) - now_s)

    def named_rest_s(self, now_s: float) -> float:
        """Seconds for which all endpoints have asked for no requests; 0 when one has not."""
        return max(0.0, min(breaker.named_until_s for breaker in self._breakers) - now_s)

    async def wait_for_endpoint(self, request: RequestState) -> Abstain | None:
        """Wait until the request has an available endpoint; an Abstain if it will get none.

        An endpoint that worked before is waited for as long as a request may take. One that never
        did, or has failed for longer, is waited for until a probe was sent.
        """
        clock = asyncio.get_running_loop().time
        while not request.endpoint.state.breaker.may_ask(now_s := clock()):
            other = self.other(request.endpoint, now_s)
            if other is not None:
                request.move(other)
                return None
            if all(breaker.is_spent for breaker in self._breakers):  # only a payment helps
                rests_s = self.rests_s(now_s)
                return _given_up(request, f"the next probe is sent in {rests_s:.0f} s")
            request.start_waiting(now_s)
            retry_after_s = self.named_rest_s(now_s)
            is_idle = all(breaker.in_flight == 0 for breaker in self._breakers)
            if is_idle and now_s + retry_after_s >= request.deadline_s:
                return _given_up(request, f"it names {retry_after_s:.0f} s more, past the deadline")
            expected_s = self._expected_until_s(request)
            request.release_reservation()
            await self._breaker_queue.wait(min(request.deadline_s, expected_s))
            now_s = clock()
            if now_s >= request.deadline_s:
                return self.past_deadline(request)
            if now_s >= expected_s and not request.endpoint.state.breaker.may_ask(now_s):
                return _given_up(request, f"it was not back in {PROBE_WITHIN_S:g} s")
        return None

    def past_deadline(self, request: RequestState) -> Abstain:
        """The outcome of a request whose deadline has passed while it waited for its endpoint."""
        return _given_up(request, "it was not back before the deadline")

    def may_use_slot(self, request: RequestState) -> bool:
        """Whether a slot that was waited for may be used: the circuit may have opened meanwhile.

        Moves the request if another endpoint, which shares the slots, is available.
        """
        now_s = asyncio.get_running_loop().time()
        before = request.endpoint.state
        if before.breaker.may_ask(now_s):
            return True
        other = self.other(request.endpoint, now_s)
        if other is not None:
            request.move(other)
        return other is not None and other.state.limiter is before.limiter

    def _expected_until_s(self, request: RequestState) -> float:
        """Until when it is worth waiting for an endpoint, on the loop's clock."""
        known_s = max(breaker.expected_until_s(self._patience_s) for breaker in self._breakers)
        return max(known_s, request.unavailable_since_s + PROBE_WITHIN_S)


def _best(endpoints: Iterable[PooledEndpoint], now_s: float) -> PooledEndpoint | None:
    """The available endpoint that ranks first; None when all circuit breakers are open."""
    available = [each for each in endpoints if each.state.breaker.may_ask(now_s)]
    return min(available, key=_rank, default=None)


def _rank(endpoint: PooledEndpoint) -> tuple[int, bool, float]:
    config, state = endpoint.config, endpoint.state
    is_full = state.limiter.in_flight >= state.limiter.limit or state.quota.waiting > 0
    return config.priority, is_full, (state.load.now + 1) / config.weight


def _given_up(request: RequestState, why: str) -> Abstain:
    kind, words = request.endpoint.state.breaker.reason
    name = request.endpoint.target.name
    return Abstain(kind, f"{name}: {words}; {why} (after {attempts_text(request.sends)})")


def attempts_text(sends: int) -> str:
    """How often a request was sent, for people.

    >>> attempts_text(1), attempts_text(2)
    ('1 attempt', '2 attempts')
    """
    return "1 attempt" if sends == 1 else f"{sends} attempts"
