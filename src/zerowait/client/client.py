"""Asking a judge until it answers, or until it is known that it will not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import msgspec

from zerowait.client.endpoints import Failover, Target, target
from zerowait.client.lanes import Lanes
from zerowait.client.limiter import Ending, Slot
from zerowait.client.port import Reply, Request, Transport, TransportError
from zerowait.client.retry import (
    Effort,
    GiveUp,
    Retry,
    decide,
    is_endpoint_fault,
    is_overload,
    retry_after_s,
)
from zerowait.client.secret import Secret
from zerowait.config.schema import Endpoint, Traffic
from zerowait.events import Listener, RequestEnded, RequestRetried, nobody
from zerowait.types import Abstain


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's reply, and what it took.

    Args:
        reply: a 200 whose body is a chat completion.
        attempts: how often the request was sent.
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
    """How far one judgement has come."""

    body: bytes
    slot: Slot
    ends_s: float
    at: int
    queue_s: float
    sends: int = 0
    attempt: int = 1
    resent: bool = False

    def move(self, slot: Slot) -> None:
        """Go on with a slot of another lane; the time in its queue is not the judge's either."""
        self.slot = slot
        self.queue_s += slot.queue_s
        self.ends_s += slot.queue_s


@dataclass(kw_only=True, eq=False)
class JudgeClient:
    """Asks one judge, at one or several endpoints that serve the same model.

    Args:
        endpoints: all serve the same model; while one fails, the next in this order is asked.
        keys: each endpoint's key, in the same order; none when empty.
        transport: sends; closed by whoever opened it.
        lanes: where the slots are handed out; shared by the judges of a job.
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
        self._targets = [
            target(endpoint, key=key) for endpoint, key in zip(self.endpoints, keys, strict=True)
        ]
        self._lanes = [self.lanes.lane(endpoint) for endpoint in self.endpoints]
        self._failover = Failover(len(self._targets))

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
            deadline_s: from the first send; the time in our queue never counts. Default:
                ``traffic.deadline_s``.
            sent: called at the first send, from when on the answer may cost money.
        """
        at = self._failover.first(asyncio.get_running_loop().time())
        course: _Course | None = None
        while True:
            async with self._lanes[at].limiter.slot() as slot:
                if course is None:
                    course = self._begin(body, slot, at, deadline_s)
                    if sent is not None:
                        sent()
                else:
                    course.move(slot)
                ended = await self._ask_in_lane(course)
            if ended is not None:
                return ended
            at = course.at

    def _begin(self, body: bytes, slot: Slot, at: int, deadline_s: float | None) -> _Course:
        allowed_s = self.traffic.deadline_s if deadline_s is None else deadline_s
        now_s = asyncio.get_running_loop().time()
        best = self._failover.first(now_s)  # it may have changed while we queued
        if self._lanes[best].limiter is self._lanes[at].limiter:
            at = best
        return _Course(body, slot, now_s + allowed_s, at, slot.queue_s)

    async def _ask_in_lane(self, course: _Course) -> Answer | Abstain | None:
        """How the judgement ended, or None if it goes on in a lane with slots of its own."""
        limiter = self._lanes[course.at].limiter
        while self._lanes[course.at].limiter is limiter:
            ended = await self._attempt(course)
            if ended is not None:
                return ended
        return None

    async def _attempt(self, course: _Course) -> Answer | Abstain | None:
        """How the judgement ended with this attempt, or None if it has to be sent again now."""
        clock = asyncio.get_running_loop().time
        place = self._targets[course.at]
        slot = course.slot
        course.sends += 1
        slot.sent()
        sent_s = clock()
        result = await self._send(place, self._body(course), course.ends_s - sent_s)
        ended_s = clock()
        answer = self._answer(result)
        ending = _ending(result, answered=answer is not None)
        slot.ended(
            ending, retry_after_s=self._named_s(result) if ending is Ending.OVERLOADED else 0
        )
        self.listener(
            RequestEnded(
                endpoint=place.name,
                status=result.status if isinstance(result, Reply) else 0,
                latency_s=ended_s - sent_s,
                queue_s=course.queue_s if course.sends == 1 else 0.0,
            )
        )
        if answer is None:
            return await self._after_failure(result, course, ended_s)
        return Answer(
            reply=answer,
            attempts=course.sends,
            latency_s=ended_s - sent_s,
            queue_s=course.queue_s,
            endpoint=place.name,
        )

    def _body(self, course: _Course) -> bytes:
        """The request as the endpoint asked now wants it: with its own name of the model."""
        model = self.endpoints[course.at].model
        if model == self.endpoints[0].model:
            return course.body
        return msgspec.json.encode(msgspec.json.decode(course.body) | {"model": model})

    async def _send(self, place: Target, body: bytes, left_s: float) -> Reply | TransportError:
        request = Request(place.url, place.headers, body)
        try:
            return await self.transport.send(request, timeout_s=min(self.traffic.timeout_s, left_s))
        except TransportError as error:
            # a value from here on; its frames would hold it, and it them, until the next collection
            return error.with_traceback(None)

    def _answer(self, result: Reply | TransportError) -> Reply | None:
        if isinstance(result, TransportError) or not 200 <= result.status < 300:
            return None
        return result if self.well_formed(result.body) else None

    async def _after_failure(
        self, failed: Reply | TransportError, course: _Course, now_s: float
    ) -> Abstain | None:
        """An Abstain, or None once the wait before the next attempt is over."""
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
            self._rest(failed, course.at, now_s)
        place = self._targets[course.at]
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

    def _rest(self, failed: Reply | TransportError, at: int, now_s: float) -> None:
        """Send the judgements that follow elsewhere, for as long as endpoint `at` asks."""
        self._failover.failed(at, rest_until_s=now_s + self._named_s(failed), now_s=now_s)

    def _named_s(self, failed: Reply | TransportError) -> float:
        """The wait that the endpoint asks for; 0 when it names none."""
        if isinstance(failed, TransportError):
            return 0.0
        return retry_after_s(failed.headers, now_s=self.wall()) or 0.0


def _ending(result: Reply | TransportError, *, answered: bool) -> Ending:
    if answered:
        return Ending.SUCCEEDED
    return Ending.OVERLOADED if is_overload(result) else Ending.SAYS_NOTHING
