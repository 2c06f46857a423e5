"""A process's side of a hub that is asked by the batch."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from zerowait.errors import ZerowaitError

T = TypeVar("T")
R = TypeVar("R")

_LARGEST_BATCH: Final = 256


class _Call(Generic[T, R]):
    """A reward that somebody waits for."""

    __slots__ = ("answer", "sample")

    def __init__(self, sample: T) -> None:
        self.sample = sample
        self.answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()

    def settle(self, result: R | ZerowaitError) -> None:
        if self.answer.done():
            return
        if isinstance(result, ZerowaitError):
            self.answer.set_exception(result)
            self.answer.exception()  # its caller may just have been cancelled
        else:
            self.answer.set_result(result)


class Desk(Generic[T, R]):
    """What one event loop waits for, and what of it has not been handed in yet.

    `T` is a sample in the form in which it travels, `R` what comes back for it.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._calls: dict[int, _Call[T, R]] = {}
        self._outbox: deque[int] = deque()
        self._posted = asyncio.Event()

    @property
    def waiting(self) -> bool:
        """Whether anybody waits for a reward."""
        return bool(self._calls)

    async def reward(self, sample: T) -> R:
        """The sample's reward, as soon as `settle` brings it."""
        number, call = next(self._numbers), _Call[T, R](sample)
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
        samples, given_up = [], []
        for _ in range(min(_LARGEST_BATCH, len(self._outbox))):
            number = self._outbox.popleft()
            call = self._calls.get(number)
            if call is None:
                given_up.append(number)
            else:
                samples.append((number, call.sample))
        if not self._outbox:
            self._posted.clear()
        return samples, given_up

    def settle(self, results: Iterable[tuple[int, R | ZerowaitError]]) -> None:
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
