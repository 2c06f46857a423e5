"""A cache behind the network that does not answer is left alone until it does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from zerowait.events import Listener, StoreFailed, StoreReturned

PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


class Absence:
    """Whether a server is away, from the first call that it left unanswered.

    Nobody waits for it meanwhile: it is probed in the background, and used again once a probe is
    answered. One that answers probes and nothing else is probed ever more seldom. It belongs to one
    event loop.

    Args:
        probe: whether the server gives a sign of life.
        listener: told once of each absence, and of its end.
        pause_s: before each probe.
    """

    def __init__(
        self, probe: Callable[[], Awaitable[bool]], *, listener: Listener, pause_s: float = PAUSE_S
    ) -> None:
        self._probe = probe
        self._listener = listener
        self._first_pause_s = self._pause_s = pause_s
        self._probing: asyncio.Task[None] | None = None

    def __bool__(self) -> bool:
        """Whether it is away."""
        return self._probing is not None

    def begin(self, why: str) -> None:
        """The server left a call unanswered; it is away until a probe is answered."""
        if self._probing is None:
            self._probing = asyncio.get_running_loop().create_task(self._until_answered())
            self._listener(StoreFailed(why=f"{why}: it is left alone until it answers again"))

    def answered(self) -> None:
        """The server answered a call."""
        self._pause_s = self._first_pause_s

    async def aclose(self) -> None:
        """Probe no more. Idempotent."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait({self._probing})

    async def _until_answered(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s)
            if await self._probe():
                break
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._probing = None
        self._listener(StoreReturned())
