"""Single flight: callers that want the same at the same time share one call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

from zerowait.errors import ClosedError

T = TypeVar("T")

Sent: TypeAlias = Callable[[], None]
"""What a call's work calls once its request is sent: from then on the answer costs money."""


@dataclass(slots=True, eq=False)
class _Flight(Generic[T]):
    """One call, its task, and the callers that wait for it."""

    waiters: set[asyncio.Future[None]] = field(default_factory=set)
    sent: bool = False
    task: asyncio.Task[T] = field(init=False)

    def mark_sent(self) -> None:
        self.sent = True


class SingleFlight(Generic[T]):
    """Shares calls by key, and owns their tasks.

    Cancelling one caller does not cancel the call: the others get their answer. When the last
    caller leaves, a call that was not sent yet is cancelled, and one that was sent goes on, so that
    the answer which is paid for still reaches the cache. It belongs to one event loop.

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

        Args:
            key: of the call.
            work: makes the call; it is given a function to call at the first send.

        Returns:
            The result, and whether a call in flight was joined.

        Raises:
            ClosedError: it was closed before the answer came.
        """
        flight = self._flights.get(key)
        joined = flight is not None
        loop = asyncio.get_running_loop()
        if flight is None:
            if self._closed:
                raise ClosedError("the calls in flight were closed; nothing more is asked")
            flight = self._flights[key] = _Flight()
            task = flight.task = loop.create_task(work(flight.mark_sent))
            self._tasks[task] = flight
            task.add_done_callback(partial(self._land, key, flight))
        task = flight.task
        waiter = loop.create_future()
        flight.waiters.add(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            flight.waiters.discard(waiter)
            if not flight.waiters and not flight.sent and not task.done():
                # no caller may join a call that is being cancelled
                if self._flights.get(key) is flight:
                    del self._flights[key]
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

    def _land(self, key: str, flight: _Flight[T], task: asyncio.Task[T]) -> None:
        """Wake the callers of a call that has ended."""
        if self._flights.get(key) is flight:
            del self._flights[key]
        del self._tasks[task]
        if not task.cancelled():
            task.exception()  # without a caller it is never looked at, and that is no mistake
        for waiter in flight.waiters:
            if not waiter.done():
                waiter.set_result(None)
