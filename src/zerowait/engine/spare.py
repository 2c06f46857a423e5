"""A stand-in that is ready before it is needed: one takes over at once, and costs nobody its start.

To start a process and to import what its rule needs takes as much of the CPU as a thousand ordinary
answers, just while they are waited for. So it is done in a lull, after a burst of work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from zerowait.engine.slots import Slots

T = TypeVar("T")


class Spare(Generic[T]):
    """Keeps one stand-in of `slots` ready; belongs to one loop.

    Args:
        slots: whose.
        how: makes one ready.
    """

    def __init__(self, slots: Slots[T], how: Callable[[T], Awaitable[None]]) -> None:
        self._slots = slots
        self._how = how
        self._look: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def after_work(self) -> None:
        """Some work was done: see to a spare when it has been quiet for a while."""
        if self._look is None:
            loop = asyncio.get_running_loop()
            self._look = loop.call_later(self._slots.patience.lull_s, self._lull)

    async def aclose(self) -> None:
        """Begin nothing any more; the workers are closed by then."""
        if self._look is not None:
            self._look.cancel()
        if self._task is not None:
            await asyncio.wait({self._task})

    def _lull(self) -> None:
        self._look = None
        if self._slots.may_prepare and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._slots.prepare(self._how))
