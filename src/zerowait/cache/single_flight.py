"""One call for everybody who asks the same thing at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

from zerowait.errors import ClosedError

T = TypeVar("T")

Sent: TypeAlias = Callable[[], None]
"""What a flight's work calls once its request has left: from then on the answer costs money."""


class _Flight(Generic[T]):
    """One call, and those who wait for it."""

    __slots__ = ("sent", "task", "waiters")

    task: asyncio.Task[T]

    def __init__(self) -> None:
        self.waiters: set[asyncio.Future[None]] = set()
        self.sent = False

    def mark_sent(self) -> None:
        self.sent = True


class SingleFlight(Generic[T]):
    """Shares calls by key, and owns them.

    A caller that is cancelled leaves alone: the others get their answer. When the last one leaves,
    a call that was not sent yet is cancelled, and one that was sent goes on, so that the answer
    which is paid for still reaches the cache. It belongs to one event loop.

    Args:
        drain_s: how long leaving ``async with`` waits for calls that were sent.
    """

    def __init__(self, *, drain_s: float = 0.0) -> None:
        self._drain_s = drain_s
        self._flights: dict[str, _Flight[T]] = {}
        self._tasks: dict[asyncio.Task[T], _Flight[T]] = {}
        self._closed = False

    def __len__(self) -> int:
        """Calls that are not finished."""
        return len(self._tasks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose(self._drain_s)

    async def run(self, key: str, work: Callable[[Sent], Coroutine[Any, Any, T]]) -> tuple[T, bool]:
        """The result of `work`, or of the call for `key` that is in flight already.

        Returns:
            The result, and whether somebody else's call was joined.

        Raises:
            ClosedError: it was closed before the answer came.
        """
        flight = self._flights.get(key)
        joined = flight is not None
        if flight is None:
            flight = self._start(key, work)
        task = flight.task
        waiter = asyncio.get_running_loop().create_future()
        flight.waiters.add(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            flight.waiters.discard(waiter)
            if not flight.waiters and not flight.sent and not task.done():
                # nobody may join a call that is being cancelled
                self._forget(key, flight)
                task.cancel()
            raise
        if task.cancelled():
            raise ClosedError("the calls in flight were cancelled before this answer came")
        return task.result(), joined

    async def aclose(self, drain_s: float = 0.0) -> None:
        """Cancel what was not sent; wait `drain_s` seconds for what was, then cancel it too.

        Afterwards no call is left. Idempotent.
        """
        self._closed = True
        for task, flight in self._tasks.items():
            if not flight.sent:
                task.cancel()
        try:
            if self._tasks and drain_s > 0:
                await asyncio.wait(list(self._tasks), timeout=drain_s)
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(list(self._tasks))

    def _start(self, key: str, work: Callable[[Sent], Coroutine[Any, Any, T]]) -> _Flight[T]:
        if self._closed:
            raise ClosedError("the calls in flight were closed; nothing more is asked")
        flight = self._flights[key] = _Flight()
        task = flight.task = asyncio.get_running_loop().create_task(work(flight.mark_sent))
        self._tasks[task] = flight
        task.add_done_callback(partial(self._land, key, flight))
        return flight

    def _land(self, key: str, flight: _Flight[T], task: asyncio.Task[T]) -> None:
        self._forget(key, flight)
        del self._tasks[task]
        if not task.cancelled():
            task.exception()  # nobody may be left to look at it, and that is no mistake
        for waiter in flight.waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _forget(self, key: str, flight: _Flight[T]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
