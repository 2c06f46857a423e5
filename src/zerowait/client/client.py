"""Asking a judge until it answers, or until it is known that it will not."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import msgspec

from zerowait.client.endpoints import Failover, target
from zerowait.client.lanes import Lanes
from zerowait.client.limiter import Limiter, Slot
from zerowait.client.port import Reply, Transport, TransportError
from zerowait.client.quota import Claim
from zerowait.client.race import Race
from zerowait.client.retry import Effort, GiveUp, Retry, decide, is_endpoint_fault
from zerowait.client.secret import Secret
from zerowait.client.sender import Permit, Result, Road, Sender
from zerowait.config.schema import Endpoint, Traffic
from zerowait.events import Listener, RequestRetried, nobody
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


@dataclass(slots=True)
class _Course:
    """How far one judgement has come; `ends_s` is infinite until its first send."""

    body: bytes
    at: int
    claim: Claim | None = None
    ends_s: float = math.inf
    queue_s: float = 0.0
    sends: int = 0
    attempt: int = 1
    resent: bool = False

    def queued(self, wait_s: float) -> None:
        """Time in our own queues is not the judge's: it moves the deadline."""
        self.queue_s += wait_s
        self.ends_s += wait_s


@dataclass(kw_only=True, eq=False)
class JudgeClient:
    """Asks one judge, at one or several endpoints that serve the same model.

    Args:
        endpoints: all serve the same model; while one fails, the next in this order is asked.
        keys: each endpoint's key, in the same order; none when empty.
        transport: sends; closed by whoever opened it.
        lanes: where slots and quota are handed out; shared by the judges of a job.
        well_formed: whether a 200's body is a chat completion; other bodies are asked for again.
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
        self._failover = Failover(len(self._roads))
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
        would let others run into the same wall. Cancelling the call frees it.

        Args:
            body: the encoded chat request, with the first endpoint's name of the model.
            deadline_s: from the first send; the time in our queues never counts. Default:
                ``traffic.deadline_s``.
            sent: called at the first send, from when on the answer may cost money.
        """
        course = _Course(body, self._failover.first(asyncio.get_running_loop().time()))
        try:
            while True:
                await self._claim(course)
                async with self._roads[course.at].lane.limiter.slot() as slot:
                    course.queued(slot.queue_s)
                    if course.ends_s == math.inf:
                        self._begin(course, deadline_s)
                        if sent is not None:
                            sent()
                    ended = await self._ask_in_lane(course, slot)
                if ended is not None:
                    return ended
        finally:
            self._give_back(course)

    def _begin(self, course: _Course, deadline_s: float | None) -> None:
        """The first send is due: the deadline runs, and the best endpoint is chosen anew."""
        now_s = asyncio.get_running_loop().time()
        course.ends_s = now_s + (self.traffic.deadline_s if deadline_s is None else deadline_s)
        best = self._failover.first(now_s)
        if best != course.at and self._limiter(best) is self._limiter(course.at):
            self._give_back(course)
            course.at = best

    async def _ask_in_lane(self, course: _Course, slot: Slot) -> Answer | Abstain | None:
        """How the judgement ended, or None if it goes on in a lane with slots of its own."""
        limiter = self._limiter(course.at)
        while self._limiter(course.at) is limiter:
            ended = await self._attempt(course, slot)
            if ended is not None:
                return ended
        return None

    async def _attempt(self, course: _Course, slot: Slot) -> Answer | Abstain | None:
        """How the judgement ended with this attempt, or None if it has to be sent again now."""
        claim = await self._claimed(course)
        road = self._roads[course.at]
        course.sends += 1
        permit = Permit(slot, claim, course.queue_s if course.sends == 1 else 0.0)
        result = await self._send(course, road, permit)
        if not result.is_answer or isinstance(result.reply, TransportError):
            return await self._after_failure(result.reply, course)
        return Answer(
            reply=result.reply,
            attempts=course.sends,
            latency_s=result.latency_s,
            queue_s=course.queue_s,
            endpoint=road.target.name,
        )

    async def _send(self, course: _Course, road: Road, permit: Permit) -> Result:
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

    async def _claimed(self, course: _Course) -> Claim:
        """The judgement's share of the endpoint's quota, taken over for a send."""
        await self._claim(course)
        claim, course.claim = course.claim, None
        return claim or Claim(0.0)

    async def _claim(self, course: _Course) -> None:
        """Reserve the judgement's share of the endpoint's quota for one send."""
        if course.claim is not None:
            return
        quota = self._roads[course.at].lane.quota
        claim = quota.try_claim(course.body)
        if claim is None:
            clock = asyncio.get_running_loop().time
            asked_s = clock()
            claim = await quota.claim(course.body)
            course.queued(clock() - asked_s)
        course.claim = claim

    def _give_back(self, course: _Course) -> None:
        if course.claim is not None:
            self._roads[course.at].lane.quota.give_back(course.claim)
            course.claim = None

    def _limiter(self, at: int) -> Limiter:
        return self._roads[at].lane.limiter

    def _body(self, course: _Course) -> bytes:
        """The request as the endpoint asked now wants it: with its own name of the model."""
        model = self.endpoints[course.at].model
        if model == self.endpoints[0].model:
            return course.body
        return msgspec.json.encode(msgspec.json.decode(course.body) | {"model": model})

    async def _after_failure(
        self, failed: Reply | TransportError, course: _Course
    ) -> Abstain | None:
        """An Abstain, or None once the wait before the next attempt is over."""
        now_s = asyncio.get_running_loop().time()
        fault = is_endpoint_fault(failed)
        beside = self._failover.beside(course.at, now_s) if fault else None
        effort = Effort(
            attempt=course.attempt,
            attempts=self.traffic.attempts,
            remaining_s=course.ends_s - now_s,
            resent=course.resent,
            elsewhere=beside is not None,
            now_s=self.wall(),
        )
        decision = decide(failed, effort, jitter=self.jitter)
        free = isinstance(decision, Retry) and not decision.counted
        if fault and not free:
            rest_until_s = now_s + self._sender.named_s(failed)
            self._failover.failed(course.at, rest_until_s=rest_until_s, now_s=now_s)
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
        await asyncio.sleep(decision.after_s)
        if free:
            course.resent = True
        else:
            course.attempt += 1
            course.at = course.at if beside is None else beside
        return None
