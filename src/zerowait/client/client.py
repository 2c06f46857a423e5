"""Asking a judge until it answers, or until it is known that it will not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

import msgspec

from zerowait.client.attempt import Admission, AttemptResult, PooledEndpoint, Sender
from zerowait.client.endpoint_pool import EndpointPool
from zerowait.client.endpoint_state import EndpointStates
from zerowait.client.failures import FailureHandler
from zerowait.client.hedged_request import HedgedRequest
from zerowait.client.http.proxy import proxy_for
from zerowait.client.limits.limiter import Slot
from zerowait.client.limits.quota import Reservation
from zerowait.client.request_state import RequestState
from zerowait.client.secret import Secret
from zerowait.client.target import target
from zerowait.client.transport import Reply, Transport, TransportError
from zerowait.config.endpoint import Api, Endpoint
from zerowait.config.traffic import Traffic
from zerowait.events import Listener, ignore_event
from zerowait.types import Abstain


class JudgeReply(msgspec.Struct, frozen=True, kw_only=True):
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
        well_formed: whether a 200's body is a whole completion; others are asked for again.
        in_words_of: turns a chat request's body into one for the API that an endpoint speaks.
        usage: the prompt and completion tokens that a request's reply says it cost, or zeros.
        traffic: how long and how often it is tried.
        listener: hears of every attempt.
        jitter: the source of randomness for waits.
        wall: Unix time in seconds, for a Retry-After that is a date.
    """

    endpoints: Sequence[Endpoint]
    keys: Sequence[Secret | None] = ()
    transport: Transport
    lanes: EndpointStates
    well_formed: Callable[[bytes], bool]
    in_words_of: Callable[[bytes, Api], bytes] = lambda body, _: body
    usage: Callable[[bytes, bytes], tuple[int, int]] = lambda _, __: (0, 0)
    traffic: Traffic = field(default_factory=Traffic)
    listener: Listener = ignore_event
    jitter: Random = field(default_factory=Random, repr=False)
    wall: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        keys = self.keys or [None] * len(self.endpoints)
        roads = [
            PooledEndpoint(
                endpoint,
                target(endpoint, key=key, proxy=proxy_for(endpoint, self.traffic.proxy)),
                self.lanes.lane(endpoint),
            )
            for endpoint, key in zip(self.endpoints, keys, strict=True)
        ]
        self._routes = EndpointPool(roads, self.traffic.deadline_s)
        self._sender = Sender(
            self.transport,
            self.well_formed,
            self.usage,
            self.listener,
            self.wall,
            endings=[word for endpoint in self.endpoints for word in endpoint.endings],
        )
        self._failures = FailureHandler(
            self._routes,
            self._sender.named_s,
            self.traffic,
            self.listener,
            jitter=self.jitter,
            wall=self.wall,
        )

    async def ask(
        self,
        body: bytes,
        *,
        deadline_s: float | None = None,
        sent: Callable[[], None] | None = None,
    ) -> JudgeReply | Abstain:
        """The judge's answer to `body`, or why there is none.

        The slot is held over all attempts and the waits between them: giving it back during a wait
        would let others run into the same wall. Only where a 429 has left fewer slots than are
        held, or where all endpoints are left alone, is it given back, and a new one waited for.
        Cancelling the call frees it.

        Args:
            body: the encoded chat request, with the first endpoint's name of the model.
            deadline_s: from the first send, or from when all endpoints are left alone before it;
                the time in our queues never counts. Default: ``traffic.deadline_s``.
            sent: called at the first send, from when on the answer may cost money.
        """
        allowed_s = self.traffic.deadline_s if deadline_s is None else deadline_s
        course = RequestState(body, allowed_s, sent)
        self._routes.begin(course)
        try:
            while True:
                ended: JudgeReply | Abstain | None = await self._routes.place(course)
                if ended is not None:
                    return ended
                await self._wait(course)
                slot = self._routes.limiter(course).slot(again=course.sends > 0)
                at_once = self._has_claim(course) and slot.try_enter()
                if not at_once and not await self._queue(course, self._admitted(course, slot)):
                    continue
                try:
                    if not self._routes.is_of_use(course) or self._routes.lost_claim(course):
                        continue
                    course.begin(asyncio.get_running_loop().time())
                    ended = await self._ask_in_lane(course, slot)
                finally:
                    slot.release()
                if ended is not None:
                    return ended
        finally:
            course.clear()
            self._routes.leave(course)

    async def _ask_in_lane(self, course: RequestState, slot: Slot) -> JudgeReply | Abstain | None:
        """How the judgement ended, or None if it goes on with another slot."""
        limiter = self._routes.limiter(course)
        while True:
            ended = await self._attempt(course, slot)
            if ended is not None:
                return ended
            if (
                (course.refused and limiter.wants_back)
                or self._routes.limiter(course) is not limiter
                or self._routes.is_barred(course)
            ):
                return None
            await self._wait(course)
            if self._routes.is_barred(course) or (course.refused and limiter.wants_back):
                return None

    async def _wait(self, course: RequestState) -> None:
        """Wait as long as the last failure asks for."""
        wait_s, course.wait_s = course.wait_s, 0.0
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    async def _attempt(self, course: RequestState, slot: Slot) -> JudgeReply | Abstain | None:
        """How the judgement ended with this attempt, or None if it has to be sent again now."""
        road = self._routes.road(course)
        breaker = road.lane.breaker
        has_claim = self._has_claim(course, has_slot=True)
        if not has_claim and not await self._queue(course, self._claim(course, has_slot=True)):
            return None
        if course.sends == 0 and course.sent is not None:
            course.sent()
        claim, course.claim = course.claim or Reservation(0.0), None
        course.sends += 1
        queue_s = course.queue_s if course.sends == 1 else 0.0
        permit = Admission(slot, claim, queue_s, is_suspect=course.own_failures > 0)
        course.sent_s = asyncio.get_running_loop().time()
        breaker.asked(course.sent_s)
        try:
            result = await self._send(course, road, permit)
        finally:
            if breaker.left():
                road.lane.exits.tell()
        if not result.is_answer or isinstance(result.reply, TransportError):
            course.others = slot.others
            return self._failures.after(result.reply, course)
        if breaker.succeeded(course.sent_s, others=slot.others):
            self._failures.welcome(road, probed=course.sent_s > breaker.opened_s)
        return JudgeReply(
            reply=result.reply,
            attempts=course.sends,
            latency_s=result.latency_s,
            queue_s=course.queue_s,
            endpoint=road.target.name,
        )

    async def _send(
        self, course: RequestState, road: PooledEndpoint, permit: Admission
    ) -> AttemptResult:
        clock = asyncio.get_running_loop().time

        def timeout_s() -> float:
            return min(self.traffic.timeout_s, course.ends_s - clock())

        body, watch = self._body(course), road.lane.watch
        if watch is None:
            return await self._sender.send(road, body, permit, timeout_s=timeout_s())
        race = HedgedRequest(self._sender, road, body, timeout_s)
        result = await race.run(permit, watch)
        course.sends += race.sent
        return result

    async def _queue(self, course: RequestState, admission: Awaitable[Literal[True]]) -> bool:
        """Whether `admission` came; the endpoint was left alone before if not."""
        loop = asyncio.get_running_loop()
        asked_s = loop.time()
        admitted = await self._routes.road(course).lane.exits.of(admission)
        course.queued(loop.time() - asked_s)
        return admitted is not None

    async def _admitted(self, course: RequestState, slot: Slot) -> Literal[True]:
        """The endpoint's queues are behind it: it has its share of the quota, and its slot."""
        if course.claim is None:
            await self._claim(course)
        await slot.enter()
        return True

    async def _claim(self, course: RequestState, *, has_slot: bool = False) -> Literal[True]:
        """Reserve the judgement's share of the endpoint's quota for one send."""
        quota = self._routes.road(course).lane.quota
        course.claim = await quota.claim(course.body, has_slot=has_slot)
        return True

    def _has_claim(self, course: RequestState, *, has_slot: bool = False) -> bool:
        """Whether it has its share of the quota already, or gets it without waiting."""
        if course.claim is None:
            quota = self._routes.road(course).lane.quota
            course.claim = quota.try_claim(course.body, has_slot=has_slot)
        return course.claim is not None

    def _body(self, course: RequestState) -> bytes:
        """The request as the endpoint asked now wants it: its name of the model, its API."""
        endpoint, body = self.endpoints[course.at], course.body
        if endpoint.model != self.endpoints[0].model:
            body = msgspec.json.encode(msgspec.json.decode(body) | {"model": endpoint.model})
        return self.in_words_of(body, endpoint.speaks)
