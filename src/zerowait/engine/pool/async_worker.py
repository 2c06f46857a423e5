"""One worker process in which the calls of asynchronous functions overlap."""

from __future__ import annotations

import asyncio
from typing import Final

from zerowait.engine.pool.worker import (
    CALL_CANCELLED,
    POOL_CLOSED,
    WORKER_BLOCKED,
    ForkServer,
    Worker,
    WorkerAnswer,
    not_started,
    timed_out,
)
from zerowait.engine.pool.worker_pool import WorkerPool
from zerowait.scorers import worker_calls
from zerowait.types import Abstain, FailureKind, Outcome

_CANCEL_GRACE_S: Final = 1.0


class AsyncWorker:
    """One process in which the calls of asynchronous functions overlap; belongs to one loop.

    A call that takes too long is cancelled. Where the process dies, or a function blocks its event
    loop, each call without an answer is retried alone in a process of its own, so that only the
    call at fault abstains.

    Args:
        server: starts the process.
        retry_pool: runs the calls that are retried alone.
        concurrency: calls at once.
        load_timeout_s: how long the process may take to load a function.
    """

    def __init__(
        self, server: ForkServer, retry_pool: WorkerPool, concurrency: int, *, load_timeout_s: float
    ) -> None:
        self._server = server
        self._retry_pool = retry_pool
        self._slots = asyncio.Semaphore(concurrency)
        self._load_timeout_s = load_timeout_s
        self._worker: Worker | None = None
        self._forking = asyncio.Lock()
        self._leaking: set[Worker] = set()
        self._closed = False

    async def score(self, target: str, call: bytes, timeout_s: float) -> Outcome:
        """The outcome of a packed call.

        Args:
            target: the function, as ``module:function``.
            call: sample and options, see `worker_calls.packed_call`.
            timeout_s: of the call.
        """
        async with self._slots:
            answer = POOL_CLOSED if self._closed else await self._ask(target, call, timeout_s)
        if answer is None:
            outcomes = await self._retry_pool.score(target, lambda: [call], timeout_s)
            return outcomes if isinstance(outcomes, Abstain) else outcomes[0]
        if isinstance(answer, Abstain):
            return answer
        if isinstance(answer, bytes):
            return worker_calls.unpacked_abstention(answer)
        return worker_calls.unpacked(answer[0])

    def close(self) -> None:
        """Start no call any more."""
        self._closed = True

    async def _ask(self, target: str, call: bytes, timeout_s: float) -> WorkerAnswer | None:
        """The answer; None where the process was lost, perhaps by another call's fault."""
        try:
            worker = await self._running_worker()
        except OSError as error:
            return POOL_CLOSED if self._closed else not_started(error)
        if target not in worker.loaded:
            fault = await self._load(worker, target)
            if fault:
                return self._unless_lost(worker, fault)
            worker.loaded.add(target)
        number, reply = worker.ask("answer", target, [call])
        try:
            await asyncio.wait({reply}, timeout=timeout_s)
            if not reply.done():
                worker.cancel(number)
                await asyncio.wait({reply}, timeout=_CANCEL_GRACE_S)
                if not reply.done():  # its loop is blocked
                    worker.stop(WORKER_BLOCKED)
                    return None
                if reply.result() is CALL_CANCELLED:
                    return timed_out(target, timeout_s)
        except asyncio.CancelledError:
            worker.cancel(number)
            raise
        finally:
            worker.forget(number)
            self._replace_if_leaking(worker)
        return self._unless_lost(worker, reply.result())

    async def _running_worker(self) -> Worker:
        async with self._forking:
            if self._worker is None or not self._worker.is_usable:
                self._worker = await self._server.fork(overlaps=True)
            return self._worker

    async def _load(self, worker: Worker, target: str) -> WorkerAnswer:
        """Empty once the worker has loaded `target`, else why it cannot.

        A caller that is cancelled leaves the loading to the other callers.
        """
        number, reply = worker.ask("load", target, [])
        try:
            await asyncio.wait({reply}, timeout=self._load_timeout_s)
        finally:
            worker.forget(number)
        if reply.done():
            return reply.result()
        worker.stop()
        return timed_out(target, self._load_timeout_s)

    def _unless_lost(self, worker: Worker, answer: WorkerAnswer) -> WorkerAnswer | None:
        """The answer; None where it only says that the process is gone, so the call is retried."""
        is_lost = not self._closed and isinstance(answer, Abstain) and not worker.is_usable
        late = isinstance(answer, Abstain) and answer.kind is FailureKind.TIMEOUT
        return None if is_lost and not late else answer

    def _replace_if_leaking(self, worker: Worker) -> None:
        """Give a worker that leaks no more calls, and end it after its last one."""
        if worker.is_usable and worker.leaks_after_call():
            self._leaking.add(worker)
            if self._worker is worker:
                self._worker = None
        if worker in self._leaking and not worker.pending:
            self._leaking.discard(worker)
            worker.stop()
