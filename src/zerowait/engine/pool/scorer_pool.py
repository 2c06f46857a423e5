"""Processes for scorers that may hang or end their process: users' functions above all.

Built-in rules share the processes of one `WorkerPool`, which grows while rows take long. The
functions of each component of the reward have processes of their own, so that nobody waits for
another component's function: a synchronous function up to ``workers`` of them, asked one thing at a
time; asynchronous ones one, in which up to ``concurrency`` calls overlap.

A deadline starts when a worker begins and never while a row waits for one. Importing the user's
module has a deadline of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from zerowait.engine.pool.microbatch import MicroBatches, Take
from zerowait.engine.pool.worker import CANCELLED, CLOSED, LOST, ForkServer, Worker, WorkerAnswer
from zerowait.errors import ClosedError
from zerowait.scorers import UserScorer, is_user_function, remote, selected
from zerowait.types import Abstain, FailureKind, Outcome, Sample

WORKERS: Final = 2
"""Processes of a component's synchronous functions, unless its ``workers`` says otherwise."""

CONCURRENCY: Final = 64
"""Overlapping calls of a component's asynchronous functions, unless its ``concurrency`` does."""

_GRACE_S: Final = 1.0


class Places(NamedTuple):
    """How many calls of a component's own functions may run at once.

    Args:
        component: whose they are.
        workers: of synchronous functions, each in a process.
        concurrency: of asynchronous functions.
    """

    component: str = ""
    workers: int = WORKERS
    concurrency: int = CONCURRENCY


@dataclass(frozen=True)
class Growth:
    """When a pool of built-in rules has more processes at work than it has places.

    Args:
        most: processes at once; a response can make each of them hang until its deadline.
        slow_s: a row that takes so long gives its place to the next one and goes on beside it; an
            ordinary answer takes a tenth of it.
        slice_s: a row that takes so long goes on at a lower priority; and where such rows leave too
            few of `most` processes, the longest is begun again later, with its whole time, when no
            other row waits.
    """

    most: int = 16
    slow_s: float = 0.02
    slice_s: float = 0.5

    @property
    def most_again(self) -> int:
        """Processes that rows which are begun again may have, so that others always go on."""
        return max(1, self.most * 3 // 4)


class ScorerPool:
    """Runs scorers by name in worker processes, started when first needed; belongs to one loop.

    Args:
        max_workers: how many built-in rules work at once, rows that take long left aside.
        functions: users' functions; one that takes lists gets together what waits for it, and one
            that is known to be asynchronous overlaps with itself.
        load_timeout_s: how long a worker may take to import the module of a scorer.
        leak_bytes: a worker that has grown so much since its first calls is replaced between two.
        growth: of the processes for built-in rules.

    Raises:
        ValueError: `max_workers` is less than 1.
    """

    def __init__(
        self,
        *,
        max_workers: int = WORKERS,
        functions: Mapping[str, UserScorer] = MappingProxyType({}),
        load_timeout_s: float = 120.0,
        leak_bytes: int = 1 << 30,
        growth: Growth = Growth(),
    ) -> None:
        if max_workers < 1:
            raise ValueError(f"max_workers must be at least 1, not {max_workers}")
        self._take_lists = frozenset(name for name, each in functions.items() if each.takes_lists)
        self._overlapping = frozenset(name for name, each in functions.items() if each.overlaps)
        self._load_timeout_s = load_timeout_s
        self._server = ForkServer(leak_bytes)
        self._rules = WorkerPool(
            self._server, size=max_workers, load_timeout_s=load_timeout_s, growth=growth
        )
        self._default = Places(workers=max_workers)
        self._functions: dict[Places, WorkerPool] = {}
        self._batches: dict[Places, MicroBatches] = {}
        self._shared: dict[Places, SharedWorker] = {}
        self._closed = False

    async def run(
        self,
        target: str,
        sample: Sample,
        *,
        options: Mapping[str, Any] | None = None,
        timeout_s: float = 30.0,
        places: Places | None = None,
    ) -> Outcome:
        """The outcome of the scorer called `target`: ``module:function`` or a built-in name.

        A scorer that takes longer than `timeout_s`, counted from the moment a worker has the
        sample, abstains with ``timeout`` and its process is ended; one that raises, ends its
        process, or returns what cannot be understood or sent abstains with ``crashed``; one that
        was overtaken by `aclose` with ``cancelled``. For a function that takes lists, `timeout_s`
        is for a list; one that fails is asked for again in parts.

        Args:
            target: the scorer.
            sample: what it judges.
            options: its keyword arguments.
            timeout_s: of one call.
            places: of the component's own functions, which no other component's take.

        Raises:
            ClosedError: the pool was closed before.
        """
        if self._closed:
            raise ClosedError("the scorer pool is closed")
        rule = selected(target, sample, options or {})
        if isinstance(rule, Abstain):
            return rule
        work = remote.packed_work(sample, rule.options)
        if isinstance(work, Abstain):
            return work
        mine = self._default if places is None else places
        if rule.scorer in self._take_lists:
            batches = self._lists_of(mine)
            return await batches.run(rule.scorer, work, rule.options, timeout_s=timeout_s)
        if rule.scorer in self._overlapping:
            return await self._shared_by(mine).judge(rule.scorer, work, timeout_s)
        pool = self._pool_of(mine) if is_user_function(rule.scorer) else self._rules
        return _only(await pool.judge(rule.scorer, lambda: [work], timeout_s))

    async def aclose(self) -> None:
        """End every worker; what is still running or waiting abstains. Idempotent."""
        self._closed = True
        for pool in (self._rules, *self._functions.values()):
            pool.close()
        for shared in self._shared.values():
            shared.close()
        await self._server.aclose()
        for batches in self._batches.values():
            await batches.aclose()

    def _pool_of(self, places: Places) -> WorkerPool:
        if places not in self._functions:
            # a function may hold a GPU, a model or a lock: never more of it than was asked
            self._functions[places] = WorkerPool(
                self._server, size=places.workers, load_timeout_s=self._load_timeout_s
            )
        return self._functions[places]

    def _lists_of(self, places: Places) -> MicroBatches:
        if places not in self._batches:
            self._batches[places] = MicroBatches(self._pool_of(places).judge)
        return self._batches[places]

    def _shared_by(self, places: Places) -> SharedWorker:
        if places not in self._shared:
            alone = self._pool_of(places._replace(workers=1))
            self._shared[places] = SharedWorker(
                self._server, alone, places.concurrency, load_timeout_s=self._load_timeout_s
            )
        return self._shared[places]


class WorkerLease:
    """A worker's time with one row, or one list."""

    def __init__(self, worker: Worker | None, *, again: bool) -> None:
        self.worker = worker
        self.again = again
        self.began_s: float | None = None
        self.is_slow = False
        self.is_evicted = False


class WorkerPool:
    """Workers that are asked one thing at a time; belongs to one loop.

    Args:
        server: starts them.
        size: how many work at once.
        load_timeout_s: how long one may take to load a scorer.
        growth: how many more there are while rows take long; None for never more than `size`.
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
        self._granted = 0  # places given to a waiter that has not taken its lease yet
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._waiting_again: deque[asyncio.Future[None]] = deque()
        self._watchdog = HangingCallWatchdog(self._look, growth.slow_s) if growth else None
        self._closed = False

    async def judge(self, target: str, take: Take, timeout_s: float) -> list[Outcome] | Abstain:
        """The outcomes of the scorer called `target` for what `take` gives when it is its turn."""
        works: list[bytes] = []
        again = False
        while True:
            await self._turn(again=again)
            lease = WorkerLease(self._idle.pop() if self._idle else None, again=again)
            self._granted -= 1
            self._leases.add(lease)
            try:
                works = works or take()
                outcomes = await self._judged(lease, target, works, timeout_s) if works else []
            finally:
                self._end(lease)
            if outcomes is not CLOSED or not lease.is_evicted or self._closed:
                return outcomes
            again = True

    def close(self) -> None:
        """Let whoever waits know; the workers are ended with the server."""
        self._closed = True
        if self._watchdog is not None:
            self._watchdog.stop()
        for queue in (self._waiting, self._waiting_again):
            while queue:
                self._grant(queue.popleft())

    async def _turn(self, *, again: bool) -> None:
        """Wait for a place; rows that are begun again let all others go first."""
        queue = self._waiting_again if again else self._waiting
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(waiter)
        self._hand_out()
        if not waiter.done() and self._watchdog is not None:
            self._watchdog.start()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._granted -= 1
                self._hand_out()
            raise

    def _hand_out(self) -> None:
        while self._waiting and self._has_room():
            self._grant(self._waiting.popleft())
        while self._waiting_again and not self._waiting and self._has_room(again=True):
            self._grant(self._waiting_again.popleft())

    def _grant(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():  # done: its caller was cancelled
            self._granted += 1
            waiter.set_result(None)

    def _has_room(self, *, again: bool = False) -> bool:
        taken = len(self._leases) + self._granted
        if self._growth is None:
            return taken < self._size
        slow = sum(lease.is_slow for lease in self._leases)
        if again and sum(each.again for each in self._leases) >= self._growth.most_again:
            return False
        most = max(self._growth.most, self._size)
        return taken - slow < self._size and taken < most

    async def _judged(
        self, lease: WorkerLease, target: str, works: list[bytes], timeout_s: float
    ) -> list[Outcome] | Abstain:
        if self._closed:
            return CLOSED
        fault = await self._loaded(lease, target)
        if fault is not None:
            return fault
        worker = lease.worker
        assert worker is not None  # noqa: S101 - it was loaded
        lease.began_s = asyncio.get_running_loop().time()
        replies = await _asked(worker, "answer", target, works, timeout_s=timeout_s)
        if isinstance(replies, Abstain):
            return replies
        if worker.leaks():
            worker.stop()
        if isinstance(replies, bytes):
            return remote.refusal(replies)
        return [remote.unpacked(reply) for reply in replies]

    async def _loaded(self, lease: WorkerLease, target: str) -> Abstain | None:
        """What is in the way of the lease's worker, which is started if need be."""
        if lease.worker is None or not lease.worker.is_usable:
            try:
                # where rules share the pool, the next ones have this one loaded, too
                rule = "" if self._growth is None else target
                lease.worker = await self._server.fork(preloaded=rule)
            except OSError as error:
                return CLOSED if self._closed else _not_started(error)
            if self._closed:
                lease.worker.stop()
                return CLOSED
        if target in lease.worker.loaded:
            return None
        fault = await _asked(lease.worker, "load", target, [], timeout_s=self._load_timeout_s)
        if not fault:
            lease.worker.loaded.add(target)
            return None
        return fault if isinstance(fault, Abstain) else remote.refusal(fault)

    def _end(self, lease: WorkerLease) -> None:
        self._leases.discard(lease)
        worker = lease.worker
        if worker is not None and worker.is_usable:
            if worker.has_lower_priority or len(self._idle) >= self._size or self._closed:
                worker.stop()
            else:
                self._idle.append(worker)
        self._hand_out()

    def _look(self) -> bool:
        """Make room for those who wait; False when nobody does."""
        growth = self._growth
        assert growth is not None  # noqa: S101 - only then there is a watchdog
        if not self._waiting and not self._waiting_again:
            return False
        now_s = asyncio.get_running_loop().time()
        long: list[tuple[float, WorkerLease]] = []
        many = 0
        for lease in self._leases:
            if lease.began_s is None or lease.worker is None:
                continue
            took_s = now_s - lease.began_s
            lease.is_slow = lease.is_slow or took_s >= growth.slow_s
            if took_s >= growth.slice_s:
                lease.worker.lower_priority()
                many += 1
                if not lease.again:
                    long.append((took_s, lease))
        self._hand_out()
        if self._waiting and long and many > growth.most - self._size:
            _, longest = max(long, key=lambda each: each[0])
            assert longest.worker is not None  # noqa: S101 - it was looked
            longest.is_evicted = True
            longest.worker.stop()
        return True


class HangingCallWatchdog:
    """Looks regularly for rows that take long, while others wait for them.

    Args:
        look: makes room; False when there is nothing more to look for.
        every_s: how often.
    """

    def __init__(self, look: Callable[[], bool], every_s: float) -> None:
        self._look = look
        self._every_s = every_s
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Somebody waits."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self._due)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        if self._look():
            self.start()


class SharedWorker:
    """One process in which the calls of asynchronous functions overlap; belongs to one loop.

    A call that takes too long is cancelled. Where the process dies, or an asynchronous function
    blocks its loop, each call that has no answer yet is begun again alone, so that it costs only
    the one whose fault it is.

    Args:
        server: starts the process.
        alone: for calls that are begun again.
        concurrency: calls at once.
        load_timeout_s: how long the process may take to load a function.
    """

    def __init__(
        self, server: ForkServer, alone: WorkerPool, concurrency: int, *, load_timeout_s: float
    ) -> None:
        self._server = server
        self._alone = alone
        self._free = asyncio.Semaphore(concurrency)
        self._load_timeout_s = load_timeout_s
        self._worker: Worker | None = None
        self._forking = asyncio.Lock()
        self._leaking: set[Worker] = set()
        self._closed = False

    async def judge(self, target: str, work: bytes, timeout_s: float) -> Outcome:
        """The outcome of the function called `target` for a packed work."""
        async with self._free:
            answer = CLOSED if self._closed else await self._overlapped(target, work, timeout_s)
        if answer is None:
            return _only(await self._alone.judge(target, lambda: [work], timeout_s))
        if isinstance(answer, Abstain):
            return answer
        return remote.refusal(answer) if isinstance(answer, bytes) else remote.unpacked(answer[0])

    def close(self) -> None:
        """Begin nothing any more."""
        self._closed = True

    async def _overlapped(self, target: str, work: bytes, timeout_s: float) -> WorkerAnswer | None:
        """The answer; None where the process was lost, perhaps by another call's fault."""
        try:
            worker = await self._running()
        except OSError as error:
            return CLOSED if self._closed else _not_started(error)
        if target not in worker.loaded:
            fault = await self._load(worker, target)
            if fault:
                return self._unless_lost(worker, fault)
            worker.loaded.add(target)
        number, reply = worker.ask("answer", target, [work])
        try:
            await asyncio.wait({reply}, timeout=timeout_s)
            if not reply.done():
                worker.cancel(number)
                await asyncio.wait({reply}, timeout=_GRACE_S)
                if not reply.done():  # its loop is blocked
                    worker.stop(LOST)
                    return None
                if reply.result() is CANCELLED:
                    return _too_late(target, timeout_s)
        except asyncio.CancelledError:
            worker.cancel(number)
            raise
        finally:
            worker.forget(number)
            self._look_for_leaks(worker)
        return self._unless_lost(worker, reply.result())

    async def _running(self) -> Worker:
        async with self._forking:
            if self._worker is None or not self._worker.is_usable:
                self._worker = await self._server.fork(overlaps=True)
            return self._worker

    async def _load(self, worker: Worker, target: str) -> WorkerAnswer:
        """What is in the way of `target`; a caller that is cancelled leaves it to the others."""
        number, reply = worker.ask("load", target, [])
        try:
            await asyncio.wait({reply}, timeout=self._load_timeout_s)
        finally:
            worker.forget(number)
        if reply.done():
            return reply.result()
        worker.stop()
        return _too_late(target, self._load_timeout_s)

    def _unless_lost(self, worker: Worker, answer: WorkerAnswer) -> WorkerAnswer | None:
        is_lost = not self._closed and isinstance(answer, Abstain) and not worker.is_usable
        late = isinstance(answer, Abstain) and answer.kind is FailureKind.TIMEOUT
        return None if is_lost and not late else answer

    def _look_for_leaks(self, worker: Worker) -> None:
        """A worker that leaks gets no more calls, and is ended after its last one."""
        if worker.is_usable and worker.leaks():
            self._leaking.add(worker)
            if self._worker is worker:
                self._worker = None
        if worker in self._leaking and not worker.calls:
            self._leaking.discard(worker)
            worker.stop()


async def _asked(
    worker: Worker, verb: str, target: str, works: list[bytes], *, timeout_s: float
) -> WorkerAnswer:
    """What the worker answers, or why it does not; then it is ended."""
    number, reply = worker.ask(verb, target, works)
    try:
        # wait() and not timeout(): an answer that is here counts, however late we wake up.
        await asyncio.wait({reply}, timeout=timeout_s)
    finally:
        worker.forget(number)
        if not reply.done() or isinstance(reply.result(), Abstain):
            worker.stop()
    return reply.result() if reply.done() else _too_late(target, timeout_s)


def _too_late(target: str, timeout_s: float) -> Abstain:
    return Abstain(FailureKind.TIMEOUT, f"{target} gave no answer in {timeout_s:g} s")


def _not_started(error: OSError) -> Abstain:
    why = f"no worker process could be started: {type(error).__name__}: {error}"
    return Abstain(FailureKind.CRASHED, why)


def _only(outcomes: list[Outcome] | Abstain) -> Outcome:
    return outcomes if isinstance(outcomes, Abstain) else outcomes[0]
