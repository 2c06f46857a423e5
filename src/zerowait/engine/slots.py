"""Who does what at once: a fixed number of workers, and a stand-in for each that takes too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Patience:
    """How long a worker may keep others waiting.

    Args:
        ready_s: until a stand-in that is ready takes over; an ordinary answer takes a tenth of it.
        start_s: until one does that has to be started first; a thousand ordinary answers take less.
        lull_s: how long after work one is made ready, if nobody waits.
    """

    ready_s: float = 0.02
    start_s: float = 0.5
    lull_s: float = 1.0


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
        self._began_s = 0.0
        self._watch: asyncio.TimerHandle | None = None

    def begins(self) -> None:
        """From now on, whoever waits gets a stand-in for this worker when it takes too long."""
        loop = asyncio.get_running_loop()
        self._began_s = loop.time()
        self._watch = loop.call_later(self._slots.patience.ready_s, self._look)

    def ends(self) -> None:
        """Nobody needs a stand-in for this worker any more."""
        if self._watch is not None:
            self._watch.cancel()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        is_late = loop.time() - self._began_s >= self._slots.patience.start_s
        self.is_replaced = self._slots.replace(any_of_them=is_late)
        if not self.is_replaced:  # nobody waits, or no stand-in is free: look again
            self._watch = loop.call_later(self._slots.patience.ready_s, self._look)


class Slots(Generic[T]):
    """Hands out workers one piece of work at a time; belongs to one loop.

    A worker that was replaced becomes a stand-in itself, so that there are never more than twice
    `regular`, and as many as that only while work takes long.

    Args:
        regular: the workers.
        stand_ins: at work only for one of `regular` that takes too long.
        is_ready: whether a stand-in can begin at once.
        patience: how long those who wait do so until a stand-in takes over.
    """

    def __init__(
        self,
        regular: Sequence[T],
        stand_ins: Sequence[T],
        *,
        is_ready: Callable[[T], bool],
        patience: Patience,
    ) -> None:
        self.patience = patience
        self._is_ready = is_ready
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

    def replace(self, *, any_of_them: bool) -> bool:
        """Let a stand-in work for good in some worker's place; False if there is no need or none.

        Args:
            any_of_them: also one that is not ready.
        """
        if not self._waiting:
            return False
        ready = [each for each in self._stand_ins if self._is_ready(each)]
        able = ready or (self._stand_ins if any_of_them else [])
        if not able:
            return False
        chosen = able[-1]
        self._stand_ins.remove(chosen)
        self._idle.append(chosen)
        self._free.release()
        return True

    @property
    def may_prepare(self) -> bool:
        """Whether nobody waits, and of the stand-ins that are free none is ready."""
        is_any_ready = any(map(self._is_ready, self._stand_ins))
        return bool(self._stand_ins) and not is_any_ready and not self._waiting

    async def prepare(self, how: Callable[[T], Awaitable[None]]) -> None:
        """Let `how` make a stand-in ready, which takes no work meanwhile."""
        if not self._stand_ins:  # the last one was needed since it was looked
            return
        stand_in = self._stand_ins.pop()
        try:
            await how(stand_in)
        finally:
            self._stand_ins.append(stand_in)
