"""What follows on an attempt that failed, for its judgement and for its endpoint."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random

from zerowait.client.attempt import PooledEndpoint
from zerowait.client.endpoint_pool import EndpointPool, times
from zerowait.client.request_state import RequestState
from zerowait.client.retry import (
    LONGEST_CAP_S,
    Effort,
    GiveUp,
    attribution,
    decide,
    is_absence,
    is_endpoint_fault,
    is_overload,
    is_rate_limit,
    is_refusal,
    is_spent,
    is_stale_connection,
    is_timeout,
    meaning,
)
from zerowait.client.transport import Reply, TransportError
from zerowait.config.traffic import Traffic
from zerowait.events import (
    AccountExhausted,
    EndingUnknown,
    EndpointEjected,
    EndpointReturned,
    Listener,
    RequestRetried,
)
from zerowait.types import Abstain

_LOG = logging.getLogger(__name__)


class FailureHandler:
    """Decides on retries, and blames endpoints.

    Args:
        routes: where judgements go on.
        named_s: the wait that a reply asks for.
        traffic: how often it is tried.
        listener: hears of every retry, and of endpoints that go and come.
        jitter: the source of randomness for waits.
        wall: Unix time in seconds, for a Retry-After that is a date.
    """

    def __init__(
        self,
        routes: EndpointPool,
        named_s: Callable[[Reply | TransportError], float],
        traffic: Traffic,
        listener: Listener,
        *,
        jitter: Random,
        wall: Callable[[], float],
    ) -> None:
        self._routes = routes
        self._choice = routes.choice
        self._named_s = named_s
        self._traffic = traffic
        self._listener = listener
        self._jitter = jitter
        self._wall = wall

    def after(self, failed: Reply | TransportError, course: RequestState) -> Abstain | None:
        """An Abstain, or None if the judgement goes on after ``course.wait_s``."""
        now_s = asyncio.get_running_loop().time()
        is_stale = is_stale_connection(failed) and not course.resent
        if not is_stale:
            self._tell_once(failed, self._routes.road(course))
            self._blame(failed, course, now_s)
        beside = self._beside(failed, course.at, now_s)
        place = self._routes.road(course).target
        effort = self._effort(failed, course, beside, now_s)
        decision = decide(failed, effort, jitter=self._jitter)
        why = place.redact(decision.why)
        if isinstance(decision, GiveUp):
            return Abstain(decision.kind, f"{place.name}: {why} (after {times(course.sends)})")
        rests = effort.barred_s is not None
        wait_s = self._choice.rests_s(now_s) if rests else decision.after_s
        self._listener(
            RequestRetried(endpoint=place.name, attempt=course.sends, wait_s=wait_s, why=why)
        )
        course.wait_s = 0.0 if rests else wait_s
        course.refused = is_overload(failed)
        if is_stale:
            course.resent = True
            return None
        course.attempt += 1
        course.free += not decision.counted
        if beside is not None:
            self._routes.move(course, beside)
        return None

    def _beside(self, failed: Reply | TransportError, at: int, now_s: float) -> int | None:
        """The endpoint where the judgement goes on, if that is another one."""
        is_long = self._named_s(failed) > LONGEST_CAP_S  # a quota of the day, say
        is_of_no_use = is_endpoint_fault(failed) or is_spent(failed) or is_long
        if is_of_no_use or not self._choice.may_stay(at, now_s):
            return self._choice.beside(at, now_s)
        return None

    def _effort(
        self, failed: Reply | TransportError, course: RequestState, beside: int | None, now_s: float
    ) -> Effort:
        choice = self._choice
        breaker = self._routes.road(course).lane.breaker
        rests = beside is None and self._routes.is_barred(course)
        return Effort(
            attempt=course.attempt,
            attempts=self._traffic.attempts,
            remaining_s=course.ends_s - now_s,
            free=course.free,
            away=breaker.has_answered and breaker.is_open,
            own=_is_own(failed, course) and not breaker.is_open,
            barred_s=choice.barred_s(now_s) if rests else None,
            resent=course.resent,
            elsewhere=beside is not None,
            now_s=self._wall(),
        )

    def _blame(self, failed: Reply | TransportError, course: RequestState, now_s: float) -> None:
        """Tell the endpoint's breaker of a failure, unless it is the request's own."""
        road = self._routes.road(course)
        breaker = road.lane.breaker
        overloads = is_overload(failed)
        spent = is_spent(failed)
        if not (spent or overloads or is_endpoint_fault(failed) or is_timeout(failed)):
            if is_refusal(failed) and breaker.heard():
                self.welcome(road)
            return
        if not spent:
            course.suspect(breaker, refused=overloads)
            if _is_own(failed, course) and not breaker.is_open:
                return
        named_s = self._named_s(failed)
        kind, why = meaning(failed)
        reason = kind, road.target.redact(why)
        by = None if is_absence(failed) and not is_rate_limit(failed) else course
        if spent:
            opens = breaker.spent(now_s, reason)
        elif overloads:
            firmly = is_endpoint_fault(failed) or named_s > LONGEST_CAP_S
            opens = breaker.refused(now_s, reason, named_s=named_s, firmly=firmly, by=by)
        else:
            opens = breaker.failed(now_s, reason, named_s=named_s, by=by)
        if opens:
            self._listener(EndpointEjected(endpoint=road.target.name, why=reason[1]))
            road.lane.exits.open()

    def _tell_once(self, failed: Reply | TransportError, road: PooledEndpoint) -> None:
        """What somebody has to do something about: an unknown ending, or an empty account."""
        if isinstance(failed, TransportError):
            return
        found, name = attribution(failed), road.target.name
        about = "account" if found.again == "elsewhere" else f"ending {found.ending}"
        if about in road.lane.told or about == "ending ":
            return
        road.lane.told.add(about)
        words = road.target.redact(found.words)
        if found.ending:
            self._listener(EndingUnknown(endpoint=name, ending=found.ending, why=words))
            _LOG.warning("%s: %s", name, words)
        else:
            self._listener(AccountExhausted(endpoint=name, why=words))
            _LOG.error("%s: no more answers until somebody looks at the account: %s", name, words)

    def welcome(self, road: PooledEndpoint, *, probed: bool = False) -> None:
        """The endpoint is back: all who wait for it may go on.

        Args:
            road: to it.
            probed: an answer to a request that was sent after it was given up says so: it was away,
                and what it refused then says nothing about how much it bears.
        """
        self._listener(EndpointReturned(endpoint=road.target.name))
        if probed:
            road.lane.limiter.recover()
        road.lane.exits.tell()


def _is_own(failed: Reply | TransportError, course: RequestState) -> bool:
    """Whether the failure is the request's own: it failed before while others were answered."""
    unsent = isinstance(failed, TransportError) and not failed.sent
    return course.own_failures > 0 and not unsent
