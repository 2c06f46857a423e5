"""Processes for scorers that may hang or end their process: users' functions above all.

Each slot is one worker process that is asked one thing at a time. So a deadline starts when the
worker begins and never while a sample waits for a slot, and ending one worker disturbs no other.
Importing the user's module has a deadline of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

from zerowait.errors import ClosedError
from zerowait.scorers import remote, selected
from zerowait.types import Abstain, FailureKind, Outcome, Sample

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from pebble import ProcessPool

_START_TIMEOUT_S = 60.0
_LAST_WORDS_S = 0.25  # pebble reports most deaths, and how, within 0.1 s
_CLOSED = Abstain(FailureKind.CANCELLED, "the scorer pool was closed")
_Reply: TypeAlias = bytes | Abstain


class ScorerPool:
    """Runs scorers by name in worker processes, started when first needed; belongs to one loop.

    Args:
        max_workers: worker processes at most.
        load_timeout_s: how long a worker may take to import the module of a scorer.

    Raises:
        ValueError: `max_workers` is less than 1.
    """

    def __init__(self, *, max_workers: int = 2, load_timeout_s: float = 120.0) -> None:
        if max_workers < 1:
            raise ValueError(f"max_workers must be at least 1, not {max_workers}")
        self._threads = ThreadPoolExecutor(2 * max_workers, thread_name_prefix="zerowait-pool")
        self._slots = [_Slot(self._threads, load_timeout_s) for _ in range(max_workers)]
        self._idle = list(self._slots)
        self._free = asyncio.Semaphore(max_workers)
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
        was overtaken by `aclose` with ``cancelled``.

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
        async with self._free:
            slot = self._idle.pop()
            try:
                return await slot.judge(rule.scorer, work, timeout_s=timeout_s)
            finally:
                self._idle.append(slot)

    async def aclose(self) -> None:
        """End every worker; what is still running or waiting abstains. Idempotent."""
        self._closed = True
        async with asyncio.TaskGroup() as group:
            for slot in self._slots:
                group.create_task(slot.aclose())
        self._threads.shutdown(wait=False)


class _Slot:
    """One worker process, replaced after every death."""

    def __init__(self, threads: Executor, load_timeout_s: float) -> None:
        self._threads = threads
        self._load_timeout_s = load_timeout_s
        self._start: asyncio.Future[_Worker] | None = None
        self._worker: _Worker | None = None
        self._loaded: set[str] = set()
        self._target = ""
        self._reply: asyncio.Future[_Reply] | None = None
        self._stopping: set[asyncio.Future[None]] = set()
        self._closed = False

    async def judge(self, target: str, work: bytes, *, timeout_s: float) -> Outcome:
        """The outcome of the scorer called `target` for packed `work`."""
        if target not in self._loaded:
            fault = await self._ask(remote.load, target, timeout_s=self._load_timeout_s)
            if fault:
                return fault if isinstance(fault, Abstain) else remote.unpacked(fault)
            self._loaded.add(target)
        reply = await self._ask(remote.answer, target, work, timeout_s=timeout_s)
        return reply if isinstance(reply, Abstain) else remote.unpacked(reply)

    async def aclose(self) -> None:
        """End the worker and whatever is still ending."""
        self._closed = True
        if self._start is not None:
            await asyncio.wait({self._start})
        _set(self._reply, _CLOSED)
        self._retire()
        if self._stopping:
            await asyncio.wait(set(self._stopping))

    async def _ask(
        self, function: Callable[..., bytes], target: str, *work: bytes, timeout_s: float
    ) -> _Reply:
        """What `function` says in the worker, or why it said nothing; then the worker is gone."""
        worker = await self._started()
        if isinstance(worker, Abstain):
            return worker
        reply: asyncio.Future[_Reply] = asyncio.get_running_loop().create_future()
        self._reply, self._target = reply, target
        try:
            asked = worker.pool.schedule(function, args=(target, *work))
            asked.add_done_callback(partial(_deliver, reply, target))
            # wait() and not timeout(): an answer that is here counts, however late we wake up.
            await asyncio.wait({reply}, timeout=timeout_s)
        except RuntimeError as error:  # the pool broke since we looked
            _set(reply, Abstain(FailureKind.CRASHED, f"{target}: {error}"))
        finally:
            self._reply = None
            if not (reply.done() and isinstance(reply.result(), bytes)):
                self._retire()
        if reply.done():
            return reply.result()
        return Abstain(FailureKind.TIMEOUT, f"{target} gave no answer in {timeout_s:g} s")

    async def _started(self) -> _Worker | Abstain:
        if self._worker is not None and not self._worker.pool.active:
            self._retire()
        if self._worker is None and not self._closed:
            if self._start is None:
                loop = asyncio.get_running_loop()
                self._start = loop.run_in_executor(self._threads, _start_worker)
                self._start.add_done_callback(self._adopt)
            start = self._start  # not ours alone: a cancelled caller leaves it to the next one
            await asyncio.wait({start})
            if (error := start.exception()) is not None:
                why = f"no worker process could be started: {type(error).__name__}: {error}"
                return Abstain(FailureKind.CRASHED, why)
        return self._worker or _CLOSED

    def _adopt(self, start: asyncio.Future[_Worker]) -> None:
        self._start = None
        if start.exception() is None:
            self._worker = worker = start.result()
            start.get_loop().add_reader(worker.process.sentinel, self._died, worker)

    def _died(self, worker: _Worker) -> None:
        """The process ended: give its last message, and pebble's report, time to arrive."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(worker.process.sentinel)
        loop.call_later(_LAST_WORDS_S, self._bury, worker)

    def _bury(self, worker: _Worker) -> None:
        if self._worker is worker:  # pebble is silent about a process that ended with exit code 0
            _set(self._reply, _crashed(self._target, worker.process.exitcode))
            self._retire()

    def _retire(self) -> None:
        """Let go of the worker at once; a thread ends it, and `aclose` waits for that."""
        worker, self._worker = self._worker, None
        self._loaded.clear()
        if worker is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(worker.process.sentinel)
            stop = loop.run_in_executor(self._threads, worker.stop)
            self._stopping.add(stop)
            stop.add_done_callback(self._stopping.discard)


@dataclass(frozen=True)
class _Worker:
    """A pebble pool of one process."""

    pool: ProcessPool
    process: BaseProcess

    def stop(self) -> None:
        """End the process and everything it started; blocks until it is gone."""
        if self.process.pid is not None:
            # The worker leads a group of its own, so that its own children end with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.pool.stop()
        self.pool.join()


def _crashed(target: str, exitcode: int | None) -> Abstain:
    how = f"ended with exit code {exitcode}"
    if exitcode is not None and exitcode < 0:
        how = f"was ended by {signal.Signals(-exitcode).name}"
    return Abstain(FailureKind.CRASHED, f"{target}: its process {how} before it answered")


def _set(reply: asyncio.Future[_Reply] | None, value: _Reply) -> None:
    if reply is not None and not reply.done():
        reply.set_result(value)


def _deliver(reply: asyncio.Future[_Reply], target: str, asked: Future[bytes]) -> None:
    """Bring pebble's result from its thread to the loop."""
    error = asked.exception()
    value = asked.result() if error is None else _crashed(target, getattr(error, "exitcode", None))
    with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
        reply.get_loop().call_soon_threadsafe(_set, reply, value)


def _start_worker() -> _Worker:
    """A running worker; blocks until it is up, and raises whatever is in the way of that."""
    from pebble import ProcessPool

    started: list[BaseProcess] = []
    pool = ProcessPool(max_workers=1, initializer=_begin, context=_context(started))
    try:
        pool.schedule(os.getpid).result(timeout=_START_TIMEOUT_S)
    except BaseException:
        pool.stop()
        pool.join()
        raise
    return _Worker(pool, started[-1])


def _begin() -> None:
    """First thing in a worker: be easy to end, with all children, and do not outlive the parent."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setpgrp()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    from multiprocessing import connection, parent_process

    if (parent := parent_process()) is not None:
        connection.wait([parent.sentinel])
        os.killpg(0, signal.SIGKILL)


def _context(started: list[BaseProcess]) -> SimpleNamespace:
    """What pebble asks of multiprocessing; the processes it makes are noted in `started`."""
    from multiprocessing import get_context

    spawn = get_context("spawn")

    def process(**given: Any) -> BaseProcess:
        made = spawn.Process(**given)
        vars(made)["_Popen"] = _spawn_without_main
        started.append(made)
        return made

    parts = {name: getattr(spawn, name) for name in ("Pipe", "RLock", "get_start_method")}
    return SimpleNamespace(Process=process, **parts)


def _spawn_without_main(process: BaseProcess) -> Any:
    """Spawns `process` like multiprocessing does, but without importing the parent's `__main__`.

    A script without a main guard would run again in every worker, and a training script would
    import its whole framework there. The standard library has no switch for it.
    """
    from multiprocessing import popen_spawn_posix, spawn

    def preparation(name: str) -> dict[str, Any]:
        data = spawn.get_preparation_data(name)
        return {key: value for key, value in data.items() if not key.startswith("init_main_")}

    quiet = SimpleNamespace(**{**vars(spawn), "get_preparation_data": preparation})
    launch = popen_spawn_posix.Popen._launch.__code__  # type: ignore[attr-defined]  # noqa: SLF001
    methods = {"_launch": FunctionType(launch, {**vars(popen_spawn_posix), "spawn": quiet})}
    return type("Popen", (popen_spawn_posix.Popen,), methods)(process)
