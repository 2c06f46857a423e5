"""Where a judgement goes: from endpoint to endpoint, and into the recess when none is there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from zerowait.client.attempt import PooledEndpoint
from zerowait.client.endpoint_state import BreakerQueue
from zerowait.client.limits.breaker import LONGEST_REST_S
from zerowait.client.limits.limiter import Limiter
from zerowait.client.request_state import RequestState
from zerowait.types import Abstain


class EndpointSelection:
    """The order of a judge's endpoints, by index into `roads`.

    Of those that are not left alone, the ones with the lowest ``priority`` share the judgements in
    proportion to their ``weight``. One that is full is passed over while another has room.

    Args:
        roads: to the endpoints.
        patience_s: how long one that worked before is waited for.
    """

    def __init__(self, roads: Sequence[PooledEndpoint], patience_s: float) -> None:
        self._roads = roads
        self._patience_s = patience_s

    def first(self, now_s: float) -> int:
        """Where a new judgement goes."""
        if len(self._roads) == 1:
            return 0
        best = self._best(range(len(self._roads)), now_s)
        return 0 if best is None else best

    def beside(self, index: int, now_s: float) -> int | None:
        """Where a judgement goes that cannot go on at `index`, or None: everybody else rests."""
        return self._best((i for i in range(len(self._roads)) if i != index), now_s)

    def may_stay(self, index: int, now_s: float) -> bool:
        """Whether the endpoint at `index` is not left alone."""
        return self._roads[index].lane.breaker.may_ask(now_s)

    def expected_until_s(self) -> float:
        """Until when it is worth waiting for one of them, if none comes back before."""
        return max(road.lane.breaker.expected_until_s(self._patience_s) for road in self._roads)

    def rests_s(self, now_s: float) -> float:
        """How long until one of them may be asked."""
        return max(0.0, min(road.lane.breaker.until_s for road in self._roads) - now_s)

    def barred_s(self, now_s: float) -> float:
        """For how long all endpoints have asked not to be asked; 0 when one has not."""
        return max(0.0, min(road.lane.breaker.named_until_s for road in self._roads) - now_s)

    @property
    def is_spent(self) -> bool:
        """Whether the accounts at all endpoints are used up."""
        return all(road.lane.breaker.is_spent for road in self._roads)

    @property
    def in_flight(self) -> int:
        """Requests sent to the endpoints that have not ended, whichever judge's."""
        return sum(road.lane.breaker.in_flight for road in self._roads)

    def _best(self, indices: Iterable[int], now_s: float) -> int | None:
        able = [i for i in indices if self.may_stay(i, now_s)]
        return min(able, key=self._rank, default=None)

    def _rank(self, index: int) -> tuple[int, bool, float]:
        endpoint, lane = self._roads[index].endpoint, self._roads[index].lane
        is_full = lane.limiter.in_flight >= lane.limiter.limit or lane.quota.waiting > 0
        return endpoint.priority, is_full, (lane.load.now + 1) / endpoint.weight


ONE_LOOK_S: Final = 2 * LONGEST_REST_S
"""Within this time somebody has looked whether an endpoint is back."""


class EndpointPool:
    """The endpoints of one judge, and who of its judgements is where.

    Args:
        roads: to the endpoints.
        patience_s: how long an endpoint that worked before is waited for.
    """

    def __init__(self, roads: Sequence[PooledEndpoint], patience_s: float) -> None:
        self.choice = EndpointSelection(roads, patience_s)
        self._roads = roads
        self._recess = BreakerQueue([road.lane.breaker for road in roads])
        for road in roads:
            road.lane.exits.when_news(self._recess.follow)

    def begin(self, course: RequestState) -> None:
        """A new judgement takes to the road."""
        course.at = self.choice.first(asyncio.get_running_loop().time())
        self.road(course).lane.load.add(1)

    def road(self, course: RequestState) -> PooledEndpoint:
        """To the endpoint where the judgement is."""
        return self._roads[course.at]

    def limiter(self, course: RequestState) -> Limiter:
        """Where the judgement gets its slot."""
        return self.road(course).lane.limiter

    async def place(self, course: RequestState) -> Abstain | None:
        """Wait until there is an endpoint that may be asked; an Abstain if there will be none.

        One that worked before is waited for as long as a judgement may take; one that never did, or
        is away for longer, for as long as it takes that somebody looks.
        """
        clock = asyncio.get_running_loop().time
        while self.is_barred(course):
            now_s = clock()
            other = self.choice.beside(course.at, now_s)
            if other is not None:
                self.move(course, other)
                return None
            if self.choice.is_spent:  # nobody waits for somebody to pay
                rests_s = self.choice.rests_s(now_s)
                return self._given_up(course, f"it is looked at again in {rests_s:.0f} s")
            course.begin(now_s)
            course.rests_since_s = min(course.rests_since_s, now_s)
            barred_s = self.choice.barred_s(now_s)
            if now_s + barred_s >= course.ends_s and self.choice.in_flight == 0:
                return self._given_up(course, f"it names {barred_s:.0f} s more, past the deadline")
            expected_s = max(self.choice.expected_until_s(), course.rests_since_s + ONE_LOOK_S)
            self._give_back(course)
            await self._recess.wait(min(course.ends_s, expected_s))
            if clock() >= course.ends_s:
                return self._given_up(course, "it was not back before the deadline")
            if clock() >= expected_s and self.is_barred(course):
                return self._given_up(course, f"it was not back in {ONE_LOOK_S:g} s")
        return None

    def is_barred(self, course: RequestState) -> bool:
        """Whether its endpoint is left alone."""
        return not self.choice.may_stay(course.at, asyncio.get_running_loop().time())

    def is_of_use(self, course: RequestState) -> bool:
        """Whether the slot still is: the endpoint may have been given up while we waited."""
        if not self.is_barred(course):
            return True
        before = self.limiter(course)
        other = self.choice.beside(course.at, asyncio.get_running_loop().time())
        if other is not None:
            self.move(course, other)
        return other is not None and self.limiter(course) is before

    def lost_claim(self, course: RequestState) -> bool:
        """Whether a quota became known while we waited for the slot, and leaves nothing for us."""
        quota, claim = self.road(course).lane.quota, course.claim
        if claim is None or quota.is_good(claim):
            return False
        quota.give_back(claim)
        course.claim = quota.try_claim(course.body, has_slot=True)
        return course.claim is None

    def move(self, course: RequestState, at: int) -> None:
        """Go on at the endpoint `at`."""
        self.leave(course)
        course.at = at
        self.road(course).lane.load.add(1)

    def leave(self, course: RequestState) -> None:
        """It has ended, or goes on elsewhere."""
        self.road(course).lane.load.add(-1)
        self._give_back(course)

    def _give_back(self, course: RequestState) -> None:
        if course.claim is not None:
            self.road(course).lane.quota.give_back(course.claim)
            course.claim = None

    def _given_up(self, course: RequestState, why: str) -> Abstain:
        road = self.road(course)
        kind, words = road.lane.breaker.reason
        return Abstain(kind, f"{road.target.name}: {words}; {why} (after {times(course.sends)})")


def times(sends: int) -> str:
    """How often something was sent, for people."""
    return "1 attempt" if sends == 1 else f"{sends} attempts"
