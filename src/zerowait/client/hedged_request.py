"""A request and its copies: the first answer wins, and the others are cancelled at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from zerowait.client.attempt import Admission, AttemptResult, PooledEndpoint, Sender
from zerowait.client.cancel_scope import CancelScope
from zerowait.client.hedging import HedgeScheduler, Line
from zerowait.client.limits.limiter import Slot
from zerowait.client.limits.quota import Reservation
from zerowait.client.retry import is_overload
from zerowait.client.transport import Reply, TransportError
from zerowait.events import RequestHedged
from zerowait.types import FailureKind


class HedgedRequest:
    """One attempt of a judgement, under the watch of its lane.

    Args:
        sender: sends the first and the copies.
        road: where they are sent.
        body: what is sent.
        timeout_s: how long a send that begins now may take.
    """

    def __init__(
        self, sender: Sender, road: PooledEndpoint, body: bytes, timeout_s: Callable[[], float]
    ) -> None:
        self.body = body
        self.copies = 0
        self.refusals = 0
        self.sent = 0  # copies that left, refused ones included
        self.since_s = 0.0
        self.line: Line | None = None
        self._sender = sender
        self._road = road
        self._timeout_s = timeout_s
        self._sent_s = 0.0
        self._watch: HedgeScheduler | None = None
        self._tasks: dict[asyncio.Task[AttemptResult], float] = {}  # and how late each was sent
        self._left: set[object] = set()
        self._scope: CancelScope | None = None
        self._won: asyncio.Task[AttemptResult] | None = None

    async def run(self, permit: Admission, watch: HedgeScheduler) -> AttemptResult:
        """The first good answer; without one, what came of the first send."""
        clock = asyncio.get_running_loop().time
        self._sent_s = clock()
        watch.enter(self)
        self._watch = watch
        latency_s: float | None = None
        try:
            try:
                result = await self._first(permit)
                if self._won is not None or _tells_a_latency(result):
                    latency_s = clock() - self._sent_s
            finally:
                self._watch = None
                watch.leave(self, latency_s)
            if not result.is_answer:
                self._won = await self._best_copy()
            return result if self._won is None else self._won.result()
        finally:
            await self._end_copies()

    def copy(self, slot: Slot, claim: Reservation) -> None:
        """Send once more; the slot and a share that was not spent are given back in the end."""
        loop = asyncio.get_running_loop()
        permit = Admission(slot, claim)
        task = loop.create_task(self._copied(permit), name="zerowait copy of a late request")
        self._tasks[task] = loop.time() - self._sent_s
        task.add_done_callback(lambda ended: self._copy_ended(ended, permit))

    async def _copied(self, permit: Admission) -> AttemptResult:
        """What came of a copy; one that is cancelled before its task runs has never left."""
        self.sent += 1
        self._left.add(asyncio.current_task())
        timeout_s = self._timeout_s()
        return await self._sender.send(self._road, self.body, permit, timeout_s=timeout_s)

    async def _first(self, permit: Admission) -> AttemptResult:
        """What came of the first send, or of the copy that was answered before."""
        timeout_s = self._timeout_s()
        try:
            with CancelScope() as self._scope:
                return await self._sender.send(self._road, self.body, permit, timeout_s=timeout_s)
        finally:
            self._scope = None
        self._won = next(filter(_is_answer, self._tasks))
        return self._won.result()

    def _copy_ended(self, task: asyncio.Task[AttemptResult], permit: Admission) -> None:
        permit.slot.release()
        if permit.claim.is_ahead:
            self._road.lane.quota.give_back(permit.claim)
        if _is_answer(task) and self._scope is not None:
            self._scope.end()
        refused = _refused(task)
        if refused is not None and self._watch is not None:
            self._watch.refused(self, self._sender.named_s(refused))

    async def _best_copy(self) -> asyncio.Task[AttemptResult] | None:
        """The first copy that is answered, or None when none is."""
        while True:
            for task in self._tasks:
                if _is_answer(task):
                    return task
            pending = [task for task in self._tasks if not task.done()]
            if not pending:
                return None
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)

    async def _end_copies(self) -> None:
        if not self._tasks:
            return
        name = self._road.target.name
        for task, after_s in self._tasks.items():
            task.cancel()
            if task not in self._left or _met_nobody(task):
                continue
            event = RequestHedged(endpoint=name, after_s=after_s, won=task is self._won)
            self._sender.listener(event)
        await asyncio.wait(self._tasks)


def _is_answer(task: asyncio.Task[AttemptResult]) -> bool:
    if not task.done() or task.cancelled() or task.exception() is not None:
        return False
    return task.result().is_answer


def _tells_a_latency(first: AttemptResult) -> bool:
    """Whether it says how long a request takes: its answer does, and its timeout says at least."""
    if isinstance(first.reply, TransportError):
        return first.reply.kind is FailureKind.TIMEOUT
    return first.is_answer


def _reply(task: asyncio.Task[AttemptResult]) -> Reply | TransportError | None:
    """What came back to a copy, or None where nothing did."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return None
    return task.result().reply


def _refused(task: asyncio.Task[AttemptResult]) -> Reply | TransportError | None:
    """The reply that turned a copy away, or None."""
    reply = _reply(task)
    return None if reply is None or not (is_overload(reply) or _met_nobody(task)) else reply


def _met_nobody(task: asyncio.Task[AttemptResult]) -> bool:
    """Whether it is certain that the server has not seen the copy."""
    reply = _reply(task)
    return isinstance(reply, TransportError) and not reply.sent
