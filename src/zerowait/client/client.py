"""Asking a judge until it answers, or until it is known that it will not."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import msgspec

from zerowait.client.choice import Choice
from zerowait.client.course import Course
from zerowait.client.endpoints import target
from zerowait.client.lanes import Lanes
from zerowait.client.limiter import Gauge, Limiter, Slot
from zerowait.client.port import Reply, Transport, TransportError
from zerowait.client.quota import Claim
from zerowait.client.race import Race
from zerowait.client.retry import (
    LONGEST_CAP_S,
    Effort,
    GiveUp,
    decide,
    is_endpoint_fault,
    is_overload,
    is_stale_connection,
    is_timeout,
    words_for,
)
from zerowait.client.secret import Secret
from zerowait.client.sender import Permit, Result, Road, Sender
from zerowait.config.endpoint import Api, Endpoint
from zerowait.config.traffic import Traffic
from zerowait.events import EndpointEjected, EndpointReturned, Listener, RequestRetried, nobody
from zerowait.types import Abstain


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's reply, and what it took.

    Args:
        reply: a 200 whose body is a chat completion.
        attempts: how often the request was sent, copies of late ones included.
        latency_s: of the attempt that succeeded.
        queue_s: spent waiting for a slot before the first send.
        endpoint: who answered.
    """

    reply: Reply
    attempts: int
    latency_s: float
    queue_s: float
    endpoint: str


@dataclass(kw_only=True, eq=False)
class JudgeClient:
    """Asks one judge, at one or several endpoints that serve the same model.

    Args:
        endpoints: all serve the same model, and share the work; one that fails is left alone.
        keys: each endpoint's key, in the same order; none when empty.
        transport: sends; closed by whoever opened it.
        lanes: where slots and quota are handed out; shared by the judges of a job.
        well_formed: whether a 200's body is a completion; other bodies are asked for again.
        in_words_of: turns a chat request's body into one for the API that an endpoint speaks.
        traffic: how long and how often it is tried.
        listener: hears of every attempt.
        jitter: the source of randomness for waits.
        wall: Unix time in seconds, for a Retry-After that is a date.
    """

    endpoints: Sequence[Endpoint]
    keys: Sequence[Secret | None] = ()
    transport: Transport
    lanes: Lanes
    well_formed: Callable[[bytes], bool]
    in_words_of: Callable[[bytes, Api], bytes] = lambda body, _: body
    traffic: Traffic = field(default_factory=Traffic)
    listener: Listener = nobody
    jitter: Random = field(default_factory=Random, repr=False)
    wall: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        keys = self.keys or [None] * len(self.endpoints)
        self._roads = [
            Road(endpoint, target(endpoint, key=key), self.lanes.lane(endpoint))
            for endpoint, key in zip(self.endpoints, keys, strict=True)
        ]
        self._choice = Choice(self._roads)
        self._sender = Sender(self.transport, self.well_formed, self.listener, self.wall)

    async def ask(
        self,
        body: bytes,
        *,
        deadline_s: float | None = None,
        sent: Callable[[], None] | None = None,
    ) -> Answer | Abstain:
        """The judge's answer to `body`, or why there is none.

        The slot is held over all attempts and the waits between them: giving it back during a wait
        would let others run into the same wall. Only where a 429 has left fewer slots than are held
        is it given back, and a new one waited for. Cancelling the call frees it.

        Args:
            body: the encoded chat request, with the first endpoint's name of the model.
            deadline_s: from the first send; the time in our queues never counts. Default:
                ``traffic.deadline_s``.
            sent: called at the first send, from when on the answer may cost money.
        """
        clock = asyncio.get_running_loop().time
        course = Course(body, self._choice.first(clock()))
        self._load(course).add(1)
        try:
            while True:
                await self._wait(course)
                await self._claim(course)
                async with self._limiter(course.at).slot(again=course.sends > 0) as slot:
                    course.queued(slot.queue_s)
                    if self._has_to_go_elsewhere(course, clock()) or self._lost_claim(course):
                        continue
                    if course.ends_s == math.inf:
                        allowed_s = self.traffic.deadline_s if deadline_s is None else deadline_s
                        course.ends_s = clock() + allowed_s
                        if sent is not None:
                            sent()
                    ended = await self._ask_in_lane(course, slot)
                if ended is not None:
                    return ended
        finally:
            self._leave_lane(course)

    def _has_to_go_elsewhere(self, course: Course, now_s: float) -> bool:
        """Whether the slot is of no use: the endpoint was given up while we waited for it."""
        if self._choice.may_stay(course.at, now_s):
            return False
        before, other = self._limiter(course.at), self._choice.beside(course.at, now_s)
        if other is not None:
            self._move(course, other)
        return self._limiter(course.at) is not before

    def _lost_claim(self, course: Course) -> bool:
        """Whether a quota became known while we waited for the slot, and leaves nothing for us."""
        quota, claim = self._roads[course.at].lane.quota, course.claim
        if claim is None or quota.is_good(claim):
            return False
        quota.give_back(claim)
        course.claim = quota.try_claim(course.body, has_slot=True)
        return course.claim is None

    def _move(self, course: Course, at: int) -> None:
        self._leave_lane(course)
        course.at = at
        self._load(course).add(1)

    def _leave_lane(self, course: Course) -> None:
        self._load(course).add(-1)
        if course.claim is not None:
            self._roads[course.at].lane.quota.give_back(course.claim)
            course.claim = None

    async def _ask_in_lane(self, course: Course, slot: Slot) -> Answer | Abstain | None:
        """How the judgement ended, or None if it goes on with another slot."""
        limiter = self._limiter(course.at)
        while self._limiter(course.at) is limiter:
            ended = await self._attempt(course, slot)
            if ended is not None:
                return ended
            if course.refused and limiter.in_flight > limiter.limit:
                break
            await self._wait(course)
        return None

    async def _wait(self, course: Course) -> None:
        """Wait as long as the last failure asks for."""
        wait_s, course.wait_s = course.wait_s, 0.0
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    async def _attempt(self, course: Course, slot: Slot) -> Answer | Abstain | None:
        """How the judgement ended with this attempt, or None if it has to be sent again now."""
        claim = await self._claimed(course)
        road = self._roads[course.at]
        course.sends += 1
        road.lane.breaker.asked(asyncio.get_running_loop().time())
        permit = Permit(slot, claim, course.queue_s if course.sends == 1 else 0.0)
        result = await self._send(course, road, permit)
        if not result.is_answer or isinstance(result.reply, TransportError):
            return self._after_failure(result.reply, course)
        if road.lane.breaker.succeeded():
            self.listener(EndpointReturned(endpoint=road.target.name))
        return Answer(
            reply=result.reply,
            attempts=course.sends,
            latency_s=result.latency_s,
            queue_s=course.queue_s,
            endpoint=road.target.name,
        )

    async def _send(self, course: Course, road: Road, permit: Permit) -> Result:
        clock = asyncio.get_running_loop().time

        def timeout_s() -> float:
            return min(self.traffic.timeout_s, course.ends_s - clock())

        body, watch = self._body(course), road.lane.watch
        if watch is None:
            return await self._sender.send(road, body, permit, timeout_s=timeout_s())
        race = Race(self._sender, road, body, timeout_s)
        result = await race.run(permit, watch)
        course.sends += race.copies
        return result

    async def _claimed(self, course: Course) -> Claim:
        """The judgement's share of the endpoint's quota, taken over for a send."""
        await self._claim(course, has_slot=True)
        claim, course.claim = course.claim, None
        return claim or Claim(0.0)

    async def _claim(self, course: Course, *, has_slot: bool = False) -> None:
        """Reserve the judgement's share of the endpoint's quota for one send."""
        if course.claim is not None:
            return
        quota = self._roads[course.at].lane.quota
        claim = quota.try_claim(course.body, has_slot=has_slot)
        if claim is None:
            clock = asyncio.get_running_loop().time
            asked_s = clock()
            claim = await quota.claim(course.body, has_slot=has_slot)
            course.queued(clock() - asked_s)
        course.claim = claim

    def _load(self, course: Course) -> Gauge:
        return self._roads[course.at].lane.load

    def _limiter(self, at: int) -> Limiter:
        return self._roads[at].lane.limiter

    def _body(self, course: Course) -> bytes:
        """The request as the endpoint asked now wants it: its name of the model, its API."""
        endpoint, body = self.endpoints[course.at], course.body
        if endpoint.model != self.endpoints[0].model:
            body = msgspec.json.encode(msgspec.json.decode(body) | {"model": endpoint.model})
        return self.in_words_of(body, endpoint.speaks)

    def _after_failure(self, failed: Reply | TransportError, course: Course) -> Abstain | None:
        """An Abstain, or None if the judgement goes on after ``course.wait_s``."""
        now_s = asyncio.get_running_loop().time()
        if not is_stale_connection(failed) or course.resent:
            self._blame(failed, course.at, now_s)
        moves = is_endpoint_fault(failed) or not self._choice.may_stay(course.at, now_s)
        beside = self._choice.beside(course.at, now_s) if moves else None
        effort = Effort(
            attempt=course.attempt,
            attempts=self.traffic.attempts,
            remaining_s=course.ends_s - now_s,
            resent=course.resent,
            elsewhere=beside is not None,
            now_s=self.wall(),
        )
        decision = decide(failed, effort, jitter=self.jitter)
        place = self._roads[course.at].target
        why = place.redact(decision.why)
        if isinstance(decision, GiveUp):
            times = "1 attempt" if course.sends == 1 else f"{course.sends} attempts"
            return Abstain(decision.kind, f"{place.name}: {why} (after {times})")
        self.listener(
            RequestRetried(
                endpoint=place.name, attempt=course.sends, wait_s=decision.after_s, why=why
            )
        )
        course.wait_s = decision.after_s
        course.refused = is_overload(failed)
        if not decision.counted:
            course.resent = True
            return None
        course.attempt += 1
        if beside is not None:
            self._move(course, beside)
        return None

    def _blame(self, failed: Reply | TransportError, at: int, now_s: float) -> None:
        """Tell the endpoint's breaker of a failure that is not the request's own."""
        named_s = self._sender.named_s(failed)
        bars_us = is_overload(failed) and named_s > LONGEST_CAP_S  # a quota of the day, say
        is_fault = is_endpoint_fault(failed) or bars_us
        if not is_fault and not is_timeout(failed):
            return
        road = self._roads[at]
        if road.lane.breaker.failed(now_s, named_s=named_s) and len(self._roads) > 1:
            why = road.target.redact(words_for(failed))
            self.listener(EndpointEjected(endpoint=road.target.name, why=why))
