"""Processes for scorers that may hang or end their process: users' functions above all.

Each slot is one worker process that is asked one thing at a time. So a deadline starts when the
worker begins and never while a sample waits for a slot, and ending one worker disturbs no other.
While a rule of ours takes long, another process stands in for the one that it keeps; one is kept
ready for that, from the first lull on.
Importing the user's module has a deadline of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias

from zerowait.engine.microbatch import MicroBatches, Take
from zerowait.engine.slots import Patience, Slots, Stint
from zerowait.engine.spare import Spare
from zerowait.engine.worker import Growth, Worker, in_time, start_worker
from zerowait.errors import ClosedError
from zerowait.scorers import is_user_function, remote, selected
from zerowait.types import Abstain, FailureKind, Outcome, Sample

_LAST_WORDS_S = 0.25  # pebble reports most deaths, and how, within 0.1 s
_ORPHAN_S = 5.0  # past its deadline a worker without a parent ends by itself
_PATIENCE = Patience()
_CLOSED = Abstain(FailureKind.CANCELLED, "the scorer pool was closed")
_Reply: TypeAlias = bytes | list[bytes] | Abstain
"""Bytes say for all that was asked what went wrong, or, empty, that nothing did."""


class ScorerPool:
    """Runs scorers by name in worker processes, started when first needed; belongs to one loop.

    Args:
        max_workers: how many work at once, and as many again while rules of ours take long; one of
            those is kept ready once a rule of ours was used. Users' functions and rules of ours
            have processes of their own.
        take_lists: the functions that want lists; they get together what waits for them.
        load_timeout_s: how long a worker may take to import the module of a scorer.
        leak_bytes: a worker that has grown so much since its first calls is replaced between two.
        patience: how long a rule of ours may keep a process that others wait for, until another
            process stands in for it.

    Raises:
        ValueError: `max_workers` is less than 1.
    """

    def __init__(
        self,
        *,
        max_workers: int = 2,
        take_lists: Collection[str] = (),
        load_timeout_s: float = 120.0,
        leak_bytes: int = 1 << 30,
        patience: Patience = _PATIENCE,
    ) -> None:
        if max_workers < 1:
            raise ValueError(f"max_workers must be at least 1, not {max_workers}")
        # for each process of rules, of stand-ins and of functions: starting it, and ending another
        self._threads = ThreadPoolExecutor(6 * max_workers, thread_name_prefix="zerowait-pool")
        self._take_lists = frozenset(take_lists)
        made = [_Slot(self._threads, load_timeout_s, leak_bytes) for _ in range(3 * max_workers)]
        self._every_slot = made
        regular, stand_ins = made[:max_workers], made[max_workers : 2 * max_workers]
        # A user's function may hold a GPU, a model or a lock: never more of it than was asked, so
        # none of it in what stands in for a rule. Who stands in does so for a rule that is at work,
        # so that there are never more functions at once than these.
        self._of_users = made[2 * max_workers :]
        self._slots = Slots(regular, stand_ins, is_ready=self._is_ready, patience=patience)
        self._spare = Spare(self._slots, self._prepare)
        self._rules: set[str] = set()
        self._batches = MicroBatches(self._judge)
        self._closed = False

    async def run(
        self,
        target: str,
        sample: Sample,
        *,
        options: Mapping[str, Any] | None = None,
        timeout_s: float = 30.0,
    ) -> Outcome:
        """The outcome of the scorer called `target`: ``module:function`` or a built-in name.

        A scorer that takes longer than `timeout_s`, counted from the moment a worker has the
        sample, abstains with ``timeout`` and its process is ended; one that raises, ends its
        process, or returns what cannot be understood or sent abstains with ``crashed``; one that
        was overtaken by `aclose` with ``cancelled``. For a function that takes lists, `timeout_s`
        is for a list; one that fails is asked for again in parts.

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
        if rule.scorer in self._take_lists:
            return await self._batches.run(rule.scorer, work, rule.options, timeout_s=timeout_s)
        outcomes = await self._judge(rule.scorer, lambda: [work], timeout_s)
        return outcomes if isinstance(outcomes, Abstain) else outcomes[0]

    async def aclose(self) -> None:
        """End every worker; what is still running or waiting abstains. Idempotent."""
        self._closed = True
        async with asyncio.TaskGroup() as group:
            for slot in self._every_slot:
                group.create_task(slot.aclose())
        await self._batches.aclose()
        await self._spare.aclose()
        self._threads.shutdown(wait=False)

    async def _judge(self, target: str, take: Take, timeout_s: float) -> list[Outcome] | Abstain:
        async with self._slots.stint() as stint:
            works = take()
            if not works:
                return []
            if is_user_function(target):
                slot = self._of_users.pop()
                try:
                    return await slot.judge(target, works, timeout_s=timeout_s, begins=_nothing)
                finally:
                    self._of_users.append(slot)
            begins = partial(self._begins, target, stint)
            try:
                return await stint.worker.judge(target, works, timeout_s=timeout_s, begins=begins)
            finally:
                if not self._closed:
                    self._spare.after_work()

    def _begins(self, rule: str, stint: Stint[_Slot]) -> None:
        """A worker has loaded `rule`, as a stand-in has to: one that nobody can load stops none."""
        self._rules.add(rule)
        stint.begins()

    def _is_ready(self, slot: _Slot) -> bool:
        return slot.has_loaded(self._rules)

    async def _prepare(self, slot: _Slot) -> None:
        await slot.prepare(self._rules)


class _Slot:
    """One worker process, replaced after every death."""

    def __init__(self, threads: Executor, load_timeout_s: float, leak_bytes: int) -> None:
        self._threads = threads
        self._load_timeout_s = load_timeout_s
        self._leak_bytes = leak_bytes
        self._growth = Growth(leak_bytes)
        self._start: asyncio.Future[Worker] | None = None
        self._worker: Worker | None = None
        self._loaded: set[str] = set()
        self._target = ""
        self._reply: asyncio.Future[_Reply] | None = None
        self._stopping: set[asyncio.Future[None]] = set()
        self._closed = False

    async def judge(
        self,
        target: str,
        works: list[bytes],
        *,
        timeout_s: float,
        begins: Callable[[], None],
    ) -> list[Outcome] | Abstain:
        """The outcomes of the scorer called `target` for packed `works`, or why there are none.

        `begins` is called when the scorer is loaded and its work begins.
        """
        fault = await self._load(target)
        if fault:
            return fault if isinstance(fault, Abstain) else remote.refusal(fault)
        begins()
        replies = await self._ask(remote.answer_many, target, works, timeout_s=timeout_s)
        if isinstance(replies, Abstain):
            return replies
        if self._worker is not None and self._growth.leaks(self._worker):
            self._retire()
        if isinstance(replies, bytes):
            return remote.refusal(replies)
        return [remote.unpacked(reply) for reply in replies]

    def has_loaded(self, targets: Collection[str]) -> bool:
        """Whether the worker runs and can begin at once with each of `targets`."""
        return self._worker is not None and self._loaded.issuperset(targets)

    async def prepare(self, targets: Collection[str]) -> None:
        """Start the worker and load `targets`; what is in the way is told to whoever needs them."""
        for target in sorted(targets):
            if await self._load(target):
                return

    async def aclose(self) -> None:
        """End the worker and whatever is still ending."""
        self._closed = True
        if self._start is not None:
            await asyncio.wait({self._start})
        _set(self._reply, _CLOSED)
        self._retire()
        if self._stopping:
            await asyncio.wait(set(self._stopping))

    async def _load(self, target: str) -> _Reply:
        """What is in the way of `target`; nothing once it is loaded."""
        if target in self._loaded:
            return b""
        fault = await self._ask(remote.load, target, timeout_s=self._load_timeout_s)
        if not fault:
            self._loaded.add(target)
        return fault

    async def _ask(
        self, function: Callable[..., Any], target: str, *work: list[bytes], timeout_s: float
    ) -> _Reply:
        """What `function` says in the worker, or why it said nothing; then the worker is gone."""
        worker = await self._started()
        if isinstance(worker, Abstain):
            return worker
        reply: asyncio.Future[_Reply] = asyncio.get_running_loop().create_future()
        self._reply, self._target = reply, target
        try:
            asked = worker.pool.schedule(
                in_time, args=(timeout_s + _ORPHAN_S, function, target, *work)
            )
            asked.add_done_callback(partial(_deliver, reply, target))
            # wait() and not timeout(): an answer that is here counts, however late we wake up.
            await asyncio.wait({reply}, timeout=timeout_s)
        except RuntimeError as error:  # the pool broke since we looked
            _set(reply, Abstain(FailureKind.CRASHED, f"{target}: {error}"))
        finally:
            self._reply = None
            if not reply.done() or isinstance(reply.result(), Abstain):
                self._retire()
        if reply.done():
            return reply.result()
        return Abstain(FailureKind.TIMEOUT, f"{target} gave no answer in {timeout_s:g} s")

    async def _started(self) -> Worker | Abstain:
        if self._worker is not None and not self._worker.pool.active:
            self._retire()
        if self._worker is None and not self._closed:
            if self._start is None:
                loop = asyncio.get_running_loop()
                self._start = loop.run_in_executor(self._threads, start_worker)
                self._start.add_done_callback(self._adopt)
            start = self._start  # not ours alone: a cancelled caller leaves it to the next one
            await asyncio.wait({start})
            if (error := start.exception()) is not None:
                why = f"no worker process could be started: {type(error).__name__}: {error}"
                return Abstain(FailureKind.CRASHED, why)
        return self._worker or _CLOSED

    def _adopt(self, start: asyncio.Future[Worker]) -> None:
        self._start = None
        if start.exception() is None:
            self._worker = worker = start.result()
            start.get_loop().add_reader(worker.process.sentinel, self._died, worker)

    def _died(self, worker: Worker) -> None:
        """The process ended: give its last message, and pebble's report, time to arrive."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(worker.process.sentinel)
        loop.call_later(_LAST_WORDS_S, self._bury, worker)

    def _bury(self, worker: Worker) -> None:
        if self._worker is worker:  # pebble is silent about a process that ended with exit code 0
            _set(self._reply, _crashed(self._target, worker.process.exitcode))
            self._retire()

    def _retire(self) -> None:
        """Let go of the worker at once; a thread ends it, and `aclose` waits for that."""
        worker, self._worker = self._worker, None
        self._loaded.clear()
        self._growth = Growth(self._leak_bytes)
        if worker is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(worker.process.sentinel)
            stop = loop.run_in_executor(self._threads, worker.stop)
            self._stopping.add(stop)
            stop.add_done_callback(self._stopping.discard)


def _nothing() -> None:
    """What happens when a user's function begins."""


def _crashed(target: str, exitcode: int | None) -> Abstain:
    how = f"ended with exit code {exitcode}"
    if exitcode is not None and exitcode < 0:
        how = f"was ended by {signal.Signals(-exitcode).name}"
    return Abstain(FailureKind.CRASHED, f"{target}: its process {how} before it answered")


def _set(reply: asyncio.Future[_Reply] | None, value: _Reply) -> None:
    if reply is not None and not reply.done():
        reply.set_result(value)


def _deliver(reply: asyncio.Future[_Reply], target: str, asked: Future[Any]) -> None:
    """Bring pebble's result from its thread to the loop."""
    error = asked.exception()
    value = asked.result() if error is None else _crashed(target, getattr(error, "exitcode", None))
    with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
        reply.get_loop().call_soon_threadsafe(_set, reply, value)
