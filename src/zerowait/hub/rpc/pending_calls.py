"""Carries what is posted at a desk to a hub, and what comes of it back."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterable
from typing import Final, Generic, Protocol, TypeVar

from zerowait.errors import ZerowaitError
from zerowait.hub.rpc.sessions import CallResult

T = TypeVar("T")
R = TypeVar("R")

_LARGEST_BATCH: Final = 256


class _Call(Generic[T, R]):
    """A result that somebody waits for."""

    __slots__ = ("answer", "item")

    def __init__(self, item: T) -> None:
        self.item = item
        self.answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()

    def settle(self, result: R | ZerowaitError) -> None:
        if self.answer.done():
            return
        if isinstance(result, ZerowaitError):
            self.answer.set_exception(result)
            self.answer.exception()  # its caller may just have been cancelled
        else:
            self.answer.set_result(result)


class PendingCalls(Generic[T, R]):
    """What one event loop waits for, and what of it has not been handed in yet.

    `T` is what is handed in, a sample in the form in which it travels, say; `R` what comes of it.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._calls: dict[int, _Call[T, R]] = {}
        self._outbox: deque[int] = deque()
        self._posted = asyncio.Event()

    @property
    def waiting(self) -> bool:
        """Whether anybody waits for a result."""
        return bool(self._calls)

    async def result(self, item: T) -> R:
        """What comes of `item`, as soon as `settle` brings it."""
        number: int = next(self._numbers)
        call: _Call[T, R] = _Call(item)
        self._calls[number] = call
        self._post(number)
        try:
            return await call.answer
        finally:
            del self._calls[number]
            if call.answer.cancelled():
                self._post(number)  # nobody waits for it any more

    async def asked(self) -> None:
        """Wait until there is something to hand in."""
        await self._posted.wait()

    async def batch(self) -> tuple[list[tuple[int, T]], list[int]]:
        """What is to be handed in next, and what is given up; waits until there is any."""
        await self._posted.wait()
        items, given_up = [], []
        for _ in range(min(_LARGEST_BATCH, len(self._outbox))):
            number = self._outbox.popleft()
            call = self._calls.get(number)
            if call is None:
                given_up.append(number)
            else:
                items.append((number, call.item))
        if not self._outbox:
            self._posted.clear()
        return items, given_up

    def settle(self, results: Iterable[CallResult[R]]) -> None:
        """Hand results to those who wait for them."""
        for number, result in results:
            call = self._calls.get(number)
            if call is not None:
                call.settle(result)

    def fail(self, error: ZerowaitError) -> None:
        """Tell everybody who waits what went wrong."""
        for call in self._calls.values():
            call.settle(error)

    def again(self) -> None:
        """Everything that is waited for has to be handed in anew."""
        self._outbox = deque(n for n, call in self._calls.items() if not call.answer.done())
        (self._posted.set if self._outbox else self._posted.clear)()

    def _post(self, number: int) -> None:
        self._outbox.append(number)
        self._posted.set()


class RpcTransport(Protocol[T, R]):
    """How a session with a hub is held."""

    async def submit(self, items: list[tuple[int, T]], given_up: list[int], /) -> bool:
        """Hand in and give up; False when the session is over."""
        ...

    async def collect(self) -> list[CallResult[R]] | None:
        """What has come, or nothing, as a sign of life; None when the session is over."""
        ...


async def converse(way: RpcTransport[T, R], desk: PendingCalls[T, R]) -> None:
    """Hand in and collect until nobody has waited for a while, or the session is over.

    Raises:
        As `way` does.
    """
    tasks = {asyncio.create_task(_write(way, desk)), asyncio.create_task(_read(way, desk))}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _write(way: RpcTransport[T, R], desk: PendingCalls[T, R]) -> None:
    """Hands in what is posted, until the session is over."""
    while await way.submit(*await desk.batch()):
        pass


async def _read(way: RpcTransport[T, R], desk: PendingCalls[T, R]) -> None:
    """Collects until nobody has waited for a while, or the session is over."""
    while (results := await way.collect()) is not None and (results or desk.waiting):
        desk.settle(results)
