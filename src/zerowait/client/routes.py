"""Where a judgement goes: from endpoint to endpoint, and into the recess when none is there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from zerowait.client.breaker import LONGEST_REST_S
from zerowait.client.choice import Choice
from zerowait.client.course import Course
from zerowait.client.limiter import Limiter
from zerowait.client.recess import Recess
from zerowait.client.sender import Road
from zerowait.types import Abstain

ONE_LOOK_S: Final = 2 * LONGEST_REST_S
"""Within this time somebody has looked whether an endpoint is back."""


class Routes:
    """The endpoints of one judge, and who of its judgements is where.

    Args:
        roads: to the endpoints.
        patience_s: how long an endpoint that worked before is waited for.
    """

    def __init__(self, roads: Sequence[Road], patience_s: float) -> None:
        self.choice = Choice(roads, patience_s)
        self._roads = roads
        self._recess = Recess([road.lane.breaker for road in roads])
        for road in roads:
            road.lane.exits.when_news(self._recess.follow)

    def begin(self, course: Course) -> None:
        """A new judgement takes to the road."""
        course.at = self.choice.first(asyncio.get_running_loop().time())
        self.road(course).lane.load.add(1)

    def road(self, course: Course) -> Road:
        """To the endpoint where the judgement is."""
        return self._roads[course.at]

    def limiter(self, course: Course) -> Limiter:
        """Where the judgement gets its slot."""
        return self.road(course).lane.limiter

    async def place(self, course: Course) -> Abstain | None:
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

    def is_barred(self, course: Course) -> bool:
        """Whether its endpoint is left alone."""
        return not self.choice.may_stay(course.at, asyncio.get_running_loop().time())

    def is_of_use(self, course: Course) -> bool:
        """Whether the slot still is: the endpoint may have been given up while we waited."""
        if not self.is_barred(course):
            return True
        before = self.limiter(course)
        other = self.choice.beside(course.at, asyncio.get_running_loop().time())
        if other is not None:
            self.move(course, other)
        return other is not None and self.limiter(course) is before

    def lost_claim(self, course: Course) -> bool:
        """Whether a quota became known while we waited for the slot, and leaves nothing for us."""
        quota, claim = self.road(course).lane.quota, course.claim
        if claim is None or quota.is_good(claim):
            return False
        quota.give_back(claim)
        course.claim = quota.try_claim(course.body, has_slot=True)
        return course.claim is None

    def move(self, course: Course, at: int) -> None:
        """Go on at the endpoint `at`."""
        self.leave(course)
        course.at = at
        self.road(course).lane.load.add(1)

    def leave(self, course: Course) -> None:
        """It has ended, or goes on elsewhere."""
        self.road(course).lane.load.add(-1)
        self._give_back(course)

    def _give_back(self, course: Course) -> None:
        if course.claim is not None:
            self.road(course).lane.quota.give_back(course.claim)
            course.claim = None

    def _given_up(self, course: Course, why: str) -> Abstain:
        road = self.road(course)
        kind, words = road.lane.breaker.reason
        return Abstain(kind, f"{road.target.name}: {words}; {why} (after {times(course.sends)})")


def times(sends: int) -> str:
    """How often something was sent, for people."""
    return "1 attempt" if sends == 1 else f"{sends} attempts"
