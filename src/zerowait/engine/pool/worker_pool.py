"""A pool of worker processes that score one call at a time; it grows while calls hang."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from zerowait.engine.pool.microbatch import TakeCalls
from zerowait.engine.pool.worker import (
    POOL_CLOSED,
    ForkServer,
    Worker,
    WorkerAnswer,
    not_started,
    timed_out,
)
from zerowait.scorers import worker_calls
from zerowait.types import Abstain, Outcome


@dataclass(frozen=True)
class Growth:
    """When a `WorkerPool` has more processes than its size.

    A call that is slow no longer counts against the pool's size, so the next one may start beside
    it. A call that hangs goes on at a lower priority. A deadline starts when the call does, so that
    a call that has only waited never times out; there are many processes, so that it hardly waits.
    Where hanging calls use them up, the one that has run longest is stopped and restarted later,
    with its whole deadline, when no other call waits. Where less than a quarter of the machine's
    memory is available, there are no more than `max_workers_low_memory`.

    Args:
        max_workers: processes at once; a response can make each of them hang until its deadline.
            One that hangs has a few MB of its own.
        max_workers_low_memory: the same while memory is low; no more than `max_workers` count.
        slow_s: seconds after which a call is slow; an ordinary answer takes a tenth of it.
        hanging_s: seconds after which a call hangs.
    """

    max_workers: int = 128
    max_workers_low_memory: int = 16
    slow_s: float = 0.02
    hanging_s: float = 0.1

    def most(self, running: int) -> int:
        """Processes that there may be at once, now that there are `running`."""
        low = min(self.max_workers, self.max_workers_low_memory)
        return low if running >= low and _is_memory_low() else self.max_workers


def _is_memory_low() -> bool:
    """Whether less than a quarter of the memory is available; False where nothing tells."""
    with contextlib.suppress(OSError, KeyError, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        sizes = {name: int(size.split()[0]) for name, _, size in (x.partition(":") for x in lines)}
        return 4 * sizes["MemAvailable"] < sizes["MemTotal"]
    return False


class WorkerLease:
    """The time that a worker spends on one call, or on one list of calls.

    Attributes:
        worker: the process; None until one is started.
        is_restart: whether the call was stopped before, and is begun again.
        began_s: when the worker got the call, on the loop's clock; None while it loads the scorer.
        is_slow: whether the call took longer than ``Growth.slow_s``.
        is_evicted: whether the worker was stopped to make room for other calls.
    """

    def __init__(self, worker: Worker | None, *, is_restart: bool) -> None:
        self.worker = worker
        self.is_restart = is_restart
        self.began_s: float | None = None
        self.is_slow = False
        self.is_evicted = False


class WorkerPool:
    """Workers that score one call (or one list of calls) at a time; belongs to one loop.

    Args:
        server: starts the processes.
        size: how many calls run at once.
        load_timeout_s: how long a worker may take to load a scorer.
        growth: how many more processes there are while calls are slow; None: never more than
            `size`.
    """

    def __init__(
        self,
        server: ForkServer,
        *,
        size: int,
        load_timeout_s: float,
        growth: Growth | None = None,
    ) -> None:
        self._server = server
        self._size = size
        self._load_timeout_s = load_timeout_s
        self._growth = growth
        self._idle: list[Worker] = []
        self._leases: set[WorkerLease] = set()
        self._granted = 0  # slots given to a waiter that has not taken its lease yet
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._waiting_restarts: deque[asyncio.Future[None]] = deque()
        self._watchdog = SlowCallWatchdog(self._make_room, growth.slow_s) if growth else None
        self._closed = False

    async def score(
        self, target: str, take: TakeCalls, timeout_s: float
    ) -> list[Outcome] | Abstain:
        """One outcome per packed call, or one abstention for all of them.

        Args:
            target: the scorer, by name.
            take: gives the packed calls; asked when a worker is free.
            timeout_s: how long the worker may take, from the moment it has the calls.
        """
        calls: list[bytes] = []
        is_restart = False
        while True:
            await self._slot(is_restart=is_restart)
            lease = WorkerLease(self._idle.pop() if self._idle else None, is_restart=is_restart)
            self._granted -= 1
            self._leases.add(lease)
            try:
                calls = calls or take()
                outcomes = await self._score(lease, target, calls, timeout_s) if calls else []
            finally:
                self._end(lease)
            if outcomes is not POOL_CLOSED or not lease.is_evicted or self._closed:
                return outcomes
            is_restart = True

    def close(self) -> None:
        """Let waiting calls abstain; the processes are ended with the fork server."""
        self._closed = True
        if self._watchdog is not None:
            self._watchdog.stop()
        for queue in (self._waiting, self._waiting_restarts):
            while queue:
                self._grant(queue.popleft())

    async def _slot(self, *, is_restart: bool) -> None:
        """Wait until a call may run; restarted calls let all others go first."""
        queue = self._waiting_restarts if is_restart else self._waiting
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(waiter)
        self._grant_slots()
        if not waiter.done() and self._watchdog is not None:
            self._watchdog.start()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._granted -= 1
                self._grant_slots()
            raise

    def _grant_slots(self) -> None:
        while self._waiting and self._has_slot():
            self._grant(self._waiting.popleft())
        while self._waiting_restarts and not self._waiting and self._has_slot(is_restart=True):
            self._grant(self._waiting_restarts.popleft())

    def _grant(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():  # done: its caller was cancelled
            self._granted += 1
            waiter.set_result(None)

    def _has_slot(self, *, is_restart: bool = False) -> bool:
        taken = len(self._leases) + self._granted
        if self._growth is None:
            return taken < self._size
        slow = sum(lease.is_slow for lease in self._leases)
        restarts = sum(lease.is_restart for lease in self._leases)
        if taken - slow >= self._size:
            return False
        most = max(self._growth.most(taken), self._size)
        if is_restart and restarts >= max(1, most * 3 // 4):
            return False  # so that other calls always go on
        return taken < most

    async def _score(
        self, lease: WorkerLease, target: str, calls: list[bytes], timeout_s: float
    ) -> list[Outcome] | Abstain:
        if self._closed:
            return POOL_CLOSED
        fault = await self._load(lease, target)
        if fault is not None:
            return fault
        worker = lease.worker
        assert worker is not None  # noqa: S101 - it was loaded
        lease.began_s = asyncio.get_running_loop().time()
        replies = await _ask(worker, "answer", target, calls, timeout_s=timeout_s)
        if isinstance(replies, Abstain):
            return replies
        if worker.leaks_after_call():
            worker.stop()
        if isinstance(replies, bytes):
            return worker_calls.unpacked_abstention(replies)
        return [worker_calls.unpacked(reply) for reply in replies]

    async def _load(self, lease: WorkerLease, target: str) -> Abstain | None:
        """None once the lease's worker has loaded the scorer; else why it cannot.

        A worker is started where the lease has none.
        """
        if lease.worker is None or not lease.worker.is_usable:
            try:
                # a pool that grows is shared by all rules: later workers have this one loaded, too
                rule = "" if self._growth is None else target
                lease.worker = await self._server.fork(preloaded=rule)
            except OSError as error:
                return POOL_CLOSED if self._closed else not_started(error)
            if self._closed:
                lease.worker.stop()
                return POOL_CLOSED
        if target in lease.worker.loaded:
            return None
        fault = await _ask(lease.worker, "load", target, [], timeout_s=self._load_timeout_s)
        if not fault:
            lease.worker.loaded.add(target)
            return None
        return fault if isinstance(fault, Abstain) else worker_calls.unpacked_abstention(fault)

    def _end(self, lease: WorkerLease) -> None:
        self._leases.discard(lease)
        worker = lease.worker
        if worker is not None and worker.is_usable:
            if worker.has_lower_priority or len(self._idle) >= self._size or self._closed:
                worker.stop()
            else:
                self._idle.append(worker)
        self._grant_slots()

    def _make_room(self) -> bool:
        """Let waiting calls start beside slow ones; False when none waits."""
        growth = self._growth
        assert growth is not None  # noqa: S101 - only then there is a watchdog
        if not self._waiting and not self._waiting_restarts:
            return False
        now_s = asyncio.get_running_loop().time()
        evictable: list[tuple[float, WorkerLease]] = []
        hanging = 0
        for lease in self._leases:
            if lease.began_s is None or lease.worker is None:
                continue
            took_s = now_s - lease.began_s
            lease.is_slow = lease.is_slow or took_s >= growth.slow_s
            if took_s >= growth.hanging_s:
                lease.worker.lower_priority()
                hanging += 1
                if not lease.is_restart:
                    evictable.append((took_s, lease))
        self._grant_slots()
        if self._waiting and evictable and hanging > growth.most(len(self._leases)) - self._size:
            _, longest = max(evictable, key=lambda each: each[0])
            assert longest.worker is not None  # noqa: S101 - only such leases are evictable
            longest.is_evicted = True
            longest.worker.stop()
        return True


class SlowCallWatchdog:
    """A timer that looks for slow calls while others wait for a worker.

    Args:
        check: makes room; False ends the checks until `start`.
        every_s: seconds between two checks.
    """

    def __init__(self, check: Callable[[], bool], every_s: float) -> None:
        self._check = check
        self._every_s = every_s
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Check regularly from now on. Idempotent."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self._due)

    def stop(self) -> None:
        """Check no more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        if self._check():
            self.start()


async def _ask(
    worker: Worker, verb: str, target: str, calls: list[bytes], *, timeout_s: float
) -> WorkerAnswer:
    """The worker's answer; where it gives none in time, it is ended and the calls abstain."""
    number, reply = worker.ask(verb, target, calls)
    try:
        # wait() and not timeout(): an answer that is here counts, however late we wake up.
        await asyncio.wait({reply}, timeout=timeout_s)
    finally:
        worker.forget(number)
        if not reply.done() or isinstance(reply.result(), Abstain):
            worker.stop()
    return reply.result() if reply.done() else timed_out(target, timeout_s)
