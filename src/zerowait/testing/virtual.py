"""Virtual clock for tests: a coroutine that sleeps for an hour returns at once.

Only the loop's clock is virtual (``asyncio.get_running_loop().time()`` and all that builds on it:
``sleep``, ``timeout``, ``wait_for``, ``call_later``). ``time.monotonic`` is not.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple, Unpack

from zerowait.errors import ZerowaitError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class DeadlockError(ZerowaitError):
    """All tasks wait with nothing scheduled, or the limit is over; names each task's await."""


def virtually(
    coroutine: Coroutine[Any, Any, T], *, patience_s: float = 0.0, limit_s: float = 86_400.0
) -> tuple[T, float]:
    """The result of `coroutine` and the virtual seconds it took; no real waiting.

    The clock starts at 0 and jumps to the next deadline whenever all tasks wait. While a thread
    started by the loop runs (``asyncio.to_thread``, ``run_in_executor``), the clock stands still;
    a deadline that falls due meanwhile is waited for in real time. Other threads, processes and
    sockets are invisible to the loop: give them `patience_s`.

    Args:
        coroutine: runs on a new loop.
        patience_s: real seconds before each jump in which threads or sockets may wake the loop.
        limit_s: virtual seconds after which the coroutine counts as endless.

    Raises:
        DeadlockError: nothing is ready and nothing is scheduled, or `limit_s` is over.
        RuntimeError: a loop runs in this thread already.

    >>> virtually(asyncio.sleep(3600, "done"))
    ('done', 3600.0)
    """
    if _a_loop_runs():
        coroutine.close()
        raise RuntimeError("virtually() starts a loop, but one is running here: await instead")
    with asyncio.Runner(loop_factory=lambda: _VirtualLoop(patience_s, limit_s)) as runner:
        return runner.run(_timed(coroutine))


async def _timed(coroutine: Coroutine[Any, Any, T]) -> tuple[T, float]:
    result = await coroutine
    return result, asyncio.get_running_loop().time()


def _a_loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose clock is set by its selector."""

    def __init__(self, patience_s: float, limit_s: float) -> None:
        self._now_s = 0.0
        self._patience_s = patience_s
        self._limit_s = limit_s
        self._threads = 0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._now_s

    def run_in_executor(
        self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._threads += 1
        future.add_done_callback(self._thread_came_back)
        return future

    async def shutdown_default_executor(
        self,
        timeout: float | None = None,  # noqa: ARG002, ASYNC109 - from 3.12 on the runner passes it
    ) -> None:
        self._threads += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self._threads -= 1

    def _thread_came_back(self, _: asyncio.Future[Any]) -> None:
        self._threads -= 1

    def _real_wait_s(self, timeout: float | None) -> float | None:
        """How long to wait in real time before the clock jumps by `timeout`."""
        return timeout if self._threads else self._patience_s

    def _jump(self, by_s: float | None) -> None:
        if by_s is None:
            raise DeadlockError(
                f"nothing is ready and nothing is scheduled at {self._now_s} s"
                f"{_waiting_tasks(self)}"
            )
        self._now_s += by_s
        if self._now_s > self._limit_s:
            over_s = self._limit_s
            self._limit_s += self._now_s  # so that the cancelled tasks can still clean up
            raise DeadlockError(f"not done after {over_s} virtual seconds{_waiting_tasks(self)}")


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that advances the loop's clock instead of sleeping."""

    def __init__(self, loop: _VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(0)
        ready = super().select(self._loop._real_wait_s(timeout))  # noqa: SLF001 - the other half of the clock
        if not ready:
            self._loop._jump(timeout)  # noqa: SLF001
        return ready


def _waiting_tasks(loop: asyncio.AbstractEventLoop) -> str:
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    return "".join(f"\n  {task.get_name()} waits in {_where(task)}" for task in tasks)


def _where(task: asyncio.Task[Any]) -> str:
    """The chain of awaits from the task's outermost coroutine inwards."""
    places = []
    at: Any = task.get_coro()
    while (frame := getattr(at, "cr_frame", None)) is not None:
        code = frame.f_code
        places.append(f"{code.co_name} ({Path(code.co_filename).name}:{frame.f_lineno})")
        at = at.cr_await
    return " > ".join(places) or "code that is not Python"
