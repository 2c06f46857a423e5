"""Who does what at once: a fixed number of workers, and a stand-in for each that takes too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Stint(Generic[T]):
    """One worker's time with one piece of work.

    Args:
        worker: who does it.
        slots: which it came from.
    """

    def __init__(self, worker: T, slots: Slots[T]) -> None:
        self.worker = worker
        self.is_replaced = False
        self._slots = slots
        self._watch: asyncio.TimerHandle | None = None

    def begins(self) -> None:
        """From now on, whoever waits gets a stand-in for this worker when it takes too long."""
        self.ends()
        self._watch = asyncio.get_running_loop().call_later(self._slots.patience_s, self._look)

    def ends(self) -> None:
        """Nobody needs a stand-in for this worker any more."""
        if self._watch is not None:
            self._watch.cancel()

    def _look(self) -> None:
        self.is_replaced = self._slots.replace()
        if not self.is_replaced:  # nobody waits, or every stand-in is at work: look again
            self.begins()


class Slots(Generic[T]):
    """Hands out workers one piece of work at a time; belongs to one loop.

    A worker that was replaced becomes a stand-in itself, so that there are never more than twice
    `regular`, and as many as that only while work takes long.

    Args:
        regular: the workers.
        stand_ins: at work only for one of `regular` that takes too long.
        patience_s: when that is.
    """

    def __init__(self, regular: Sequence[T], stand_ins: Sequence[T], *, patience_s: float) -> None:
        self.patience_s = patience_s
        self._idle = list(regular)
        self._stand_ins = list(stand_ins)
        self._free = asyncio.Semaphore(len(regular))
        self._waiting = 0

    @asynccontextmanager
    async def stint(self) -> AsyncIterator[Stint[T]]:
        """A worker, as soon as one is free."""
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        stint = Stint(self._idle.pop(), self)
        try:
            yield stint
        finally:
            stint.ends()
            if stint.is_replaced:
                self._stand_ins.append(stint.worker)
            else:
                self._idle.append(stint.worker)
                self._free.release()

    def replace(self) -> bool:
        """Let a stand-in work for good in some worker's place; False if nobody waits for one."""
        if not (self._waiting and self._stand_ins):
            return False
        self._idle.append(self._stand_ins.pop())
        self._free.release()
        return True
