"""One attempt of a judge request: the send, its hedged copies, and the report to the limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from zerowait.attribution import attributed, shortened
from zerowait.client.cancel_scope import CancelScope
from zerowait.client.endpoint_state import PooledEndpoint
from zerowait.client.headers import retry_after_s
from zerowait.client.hedging import HedgeQueue, HedgeScheduler
from zerowait.client.limits.limiter import AttemptOutcome, Slot
from zerowait.client.limits.quota import Reservation
from zerowait.client.retry import asked_wait_s, is_overload, is_timeout
from zerowait.client.stream import STREAM_BEGINS, whole_reply
from zerowait.client.target import Target
from zerowait.client.transport import Reply, Request, Transport, TransportError
from zerowait.completion import Completion
from zerowait.config.urls import shown_url
from zerowait.errors import ZerowaitError
from zerowait.events import Listener, RequestEnded, RequestHedged
from zerowait.types import FailureKind

_SHOWN: Final = 200
_QUOTA_HEADERS: Final = frozenset({"x-ratelimit-limit-requests", "x-ratelimit-limit-tokens"})


class Admission(msgspec.Struct, frozen=True):
    """The right to send once.

    Args:
        slot: its place among the requests in flight.
        reservation: its share of the quota.
        queue_s: seconds spent waiting for them.
        is_suspect: the request was rejected before while others were accepted: another rejection
            says nothing about the limit.
    """

    slot: Slot
    reservation: Reservation
    queue_s: float = 0.0
    is_suspect: bool = False


class AttemptResult(msgspec.Struct, frozen=True):
    """The reply to one send.

    Args:
        reply: what came back, or the error where no complete reply came.
        latency_s: seconds from the send to the end of the reply.
        completion: the decoded answer; None where the reply is a failure.
    """

    reply: Reply | TransportError
    latency_s: float
    completion: Completion | None


class Sender(msgspec.Struct, frozen=True):
    """Sends requests, decodes the replies, and reports each to limiter, quota and listener.

    Args:
        transport: carries them.
        decode: the typed completion in the body of a 2xx, or None.
        usage: the prompt and completion tokens to book for a request's body and its reply.
        listener: receives a `RequestEnded` for each.
        wall: Unix time in seconds, for a Retry-After that is a date.
        endings: further words that mean a complete reply.
    """

    transport: Transport
    decode: Callable[[bytes], Completion | None]
    usage: Callable[[bytes, Completion], tuple[int, int]]
    listener: Listener
    wall: Callable[[], float]
    endings: Sequence[str] = ()

    async def send(
        self, endpoint: PooledEndpoint, body: bytes, admission: Admission, *, timeout_s: float
    ) -> AttemptResult:
        """The result of one send; whatever a transport fails with is a result, too.

        Args:
            endpoint: where it is sent.
            body: the request as this endpoint understands it.
            admission: its slot and its share of the quota.
            timeout_s: the longest that it may take, in seconds.

        Raises:
            ZerowaitError: it could not be sent at all: the budget is spent, the transport closed.
        """
        clock = asyncio.get_running_loop().time
        admission.slot.sent()
        if admission.reservation.is_ahead:
            endpoint.state.quota.sent(admission.reservation)
        sent_s = clock()
        reply = await self._exchange(endpoint.target, body, timeout_s)
        latency_s = clock() - sent_s
        status, completion = 0, None
        if isinstance(reply, Reply):
            status = reply.status
            if 200 <= status < 300:
                completion = reply.completion or self.decode(reply.body)
            if completion is None or completion.failure is not None:
                completion, reply = None, self._attributed(reply)
        result = AttemptResult(reply, latency_s, completion)
        self._book(endpoint, body, admission, result)
        self.listener(
            RequestEnded(
                endpoint=endpoint.target.name,
                status=status,
                latency_s=latency_s,
                queue_s=admission.queue_s,
            )
        )
        return result

    def retry_after_s(self, reply: Reply | TransportError) -> float:
        """The seconds that the endpoint asks to wait; 0 when it names none."""
        return asked_wait_s(reply, now_s=self.wall()) or 0.0

    async def _exchange(
        self, target: Target, body: bytes, timeout_s: float
    ) -> Reply | TransportError:
        """The reply without the endpoint's secrets, or the error as a value."""
        try:
            request = Request(target.url, target.headers, body, target.proxy)
            reply = await self.transport.send(request, timeout_s=timeout_s)
            if reply.body[:1] in STREAM_BEGINS and (whole := whole_reply(reply.body)) is not None:
                # before the keys are struck out: one may be spread over several events
                reply = Reply(reply.status, reply.headers, whole)
            return target.scrub(reply) if target.has_secrets else reply
        except TransportError as error:
            return _sanitized(error, target)
        except ZerowaitError:
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Our task was not cancelled: something inside the transport was
            return _as_transport_error(error, target)
        except Exception as error:  # noqa: BLE001 - the transport may be the user's own
            return _as_transport_error(error, target)

    def _attributed(self, reply: Reply) -> Reply:
        """Attach the failure attribution to `reply`, and the status that the body names.

        So an error that the body of a 200 tells counts everywhere as if its status had said it.
        """
        found = attributed(
            reply.status,
            reply.body,
            has_wait=retry_after_s(reply.headers, now_s=self.wall()) is not None,
            accepted=self.endings,
        )
        if 300 <= reply.status < 400 and (where := reply.headers.get("location")):
            leads = shortened(shown_url(where).partition("?")[0])
            words = f"{found.words}; it leads to {leads}"
            found = msgspec.structs.replace(found, words=words)
        return Reply(found.status, reply.headers, reply.body, attribution=found)

    def _book(
        self, endpoint: PooledEndpoint, body: bytes, admission: Admission, result: AttemptResult
    ) -> None:
        """Tell the limiter and the quota how the send ended."""
        reply, quota, reservation = result.reply, endpoint.state.quota, admission.reservation
        if isinstance(reply, TransportError):
            admission.slot.ended(AttemptOutcome.SAYS_NOTHING)
            return
        dry_s = 0.0
        outcome = AttemptOutcome.SAYS_NOTHING
        if result.completion is not None:
            outcome = AttemptOutcome.SUCCEEDED
            if quota.counts_tokens:
                quota.settle(reservation, body, self.usage(body, result.completion))
        elif is_overload(reply):
            outcome, dry_s = AttemptOutcome.OVERLOADED, self.retry_after_s(reply)
        if dry_s > 0 or not _QUOTA_HEADERS.isdisjoint(reply.headers):
            quota.learn_from_headers(reply.headers, reservation, dry_s=dry_s)
        if outcome is AttemptOutcome.OVERLOADED:
            quota.rejected(reservation)
            if admission.is_suspect:
                outcome = AttemptOutcome.SAYS_NOTHING
        admission.slot.ended(outcome, retry_after_s=dry_s)


class HedgedRequest:
    """One attempt with its hedged copies: the first answer wins, the others are cancelled at once.

    The `HedgeScheduler` calls `copy` when the request is late; before that nothing is kept but the
    time of its send.

    Args:
        sender: sends the first request and the copies.
        endpoint: where they are sent.
        body: what is sent.
        deadline_s: on the loop's clock; a copy must be answered before.
    """

    def __init__(
        self, sender: Sender, endpoint: PooledEndpoint, body: bytes, deadline_s: float
    ) -> None:
        self.body = body
        self.copies = 0
        self.rejections = 0
        self.sent = 0  # copies that left, rejected ones included
        self.since_s = 0.0
        self.queue: HedgeQueue | None = None
        self._sender = sender
        self._endpoint = endpoint
        self._deadline_s = deadline_s
        self._timeout_s = 0.0
        self._sent_s = 0.0
        self._scheduler: HedgeScheduler | None = None
        self._tasks: dict[asyncio.Task[AttemptResult], float] = {}  # and how late each was sent
        self._left: set[object] = set()
        self._first_task = asyncio.current_task()
        self._cancellations = 0 if self._first_task is None else self._first_task.cancelling()
        self._scope: CancelScope | None = None  # around the first send, once there is a copy
        self._won: asyncio.Task[AttemptResult] | None = None

    async def run(
        self, admission: Admission, scheduler: HedgeScheduler, timeout_s: float
    ) -> AttemptResult:
        """The first answer; without one, the result of the first send.

        Args:
            admission: of the first send.
            scheduler: decides when copies are sent.
            timeout_s: of the first send, in seconds.
        """
        clock = asyncio.get_running_loop().time
        self._timeout_s = timeout_s
        self._sent_s = clock()
        scheduler.enter(self, self._sent_s)
        self._scheduler = scheduler
        latency_s: float | None = None
        try:
            try:
                result = await self._first(admission)
                if result.completion is not None or is_timeout(result.reply):
                    latency_s = clock() - self._sent_s
            finally:
                self._scheduler = None
                scheduler.leave(self, latency_s)
            if result.completion is None and self._tasks:
                self._won = await self._best_copy()
            return result if self._won is None else self._won.result()
        finally:
            if self._tasks:
                await self._end_copies(self._tasks)

    def copy(self, slot: Slot, reservation: Reservation) -> None:
        """Send once more; slot and reservation are given back when that has ended.

        Args:
            slot: held for the copy.
            reservation: its share of the quota.
        """
        loop = asyncio.get_running_loop()
        if self._scope is None and self._first_task is not None:
            self._scope = CancelScope(self._first_task, self._cancellations)
        admission = Admission(slot, reservation)
        task = loop.create_task(self._copied(admission), name="zerowait copy of a late request")
        self._tasks[task] = loop.time() - self._sent_s
        task.add_done_callback(lambda ended: self._copy_ended(ended, admission))

    async def _first(self, admission: Admission) -> AttemptResult:
        """The result of the first send, or of the copy that was answered before."""
        try:
            result = await self._sender.send(
                self._endpoint, self.body, admission, timeout_s=self._timeout_s
            )
        except BaseException as error:
            if self._scope is None or not self._scope.leave(error):
                raise
        else:
            if self._scope is not None:
                self._scope.leave(None)
            return result
        finally:
            self._first_task = None
        self._won = next(filter(_is_answer, self._tasks))
        return self._won.result()

    async def _copied(self, admission: Admission) -> AttemptResult:
        """The result of a copy; one that is cancelled before its task runs was never sent."""
        self.sent += 1
        self._left.add(asyncio.current_task())
        left_s = self._deadline_s - asyncio.get_running_loop().time()
        return await self._sender.send(
            self._endpoint, self.body, admission, timeout_s=min(self._timeout_s, left_s)
        )

    def _copy_ended(self, task: asyncio.Task[AttemptResult], admission: Admission) -> None:
        admission.slot.release()
        if admission.reservation.is_ahead:
            self._endpoint.state.quota.give_back(admission.reservation)
        if _is_answer(task) and self._scope is not None and self._first_task is not None:
            self._scope.end()
        rejection = _rejection(task)
        if rejection is not None and self._scheduler is not None:
            self._scheduler.rejected(self, self._sender.retry_after_s(rejection))

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

    async def _end_copies(self, tasks: dict[asyncio.Task[AttemptResult], float]) -> None:
        """Cancel the copies, and report those that the server may have seen."""
        for task, after_s in tasks.items():
            task.cancel()
            if task in self._left and not _was_unsent(task):
                won = task is self._won
                name = self._endpoint.target.name
                self._sender.listener(RequestHedged(endpoint=name, after_s=after_s, won=won))
        await asyncio.wait(tasks)


def _is_answer(task: asyncio.Task[AttemptResult]) -> bool:
    result = _result(task)
    return result is not None and result.completion is not None


def _result(task: asyncio.Task[AttemptResult]) -> AttemptResult | None:
    """The result of a copy, or None where it has none."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return None
    return task.result()


def _rejection(task: asyncio.Task[AttemptResult]) -> Reply | TransportError | None:
    """The reply that rejected a copy, or the error with which it was not sent; else None."""
    result = _result(task)
    if result is None or not (is_overload(result.reply) or _was_unsent(task)):
        return None
    return result.reply


def _was_unsent(task: asyncio.Task[AttemptResult]) -> bool:
    """Whether it is certain that the server has not seen the copy."""
    result = _result(task)
    return result is not None and isinstance(result.reply, TransportError) and not result.reply.sent


def _sanitized(error: TransportError, target: Target) -> TransportError:
    """`error` as a value: without frames, which it would keep alive, and without secrets."""
    error.detail = target.redact(error.detail)
    error.args = (error.detail,)
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _as_transport_error(error: BaseException, target: Target) -> TransportError:
    """Wrap an unexpected exception of a transport as a `TransportError`."""
    late = isinstance(error, TimeoutError)
    words = target.redact(f"{type(error).__name__}: {error}".removesuffix(": "))
    return TransportError(
        FailureKind.TIMEOUT if late else FailureKind.UNREACHABLE,
        f"the transport failed: {words[:_SHOWN]}",
    )
