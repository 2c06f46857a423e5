"""Waiting for a hub in another process, as long as it shows that it is alive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from zerowait.errors import HubLostError

T = TypeVar("T")

BEAT_S = 10.0
"""Far below the silence after which a hub takes its client for dead."""


class Pulse:
    """Waits for a hub's answers; one beat at a time stands for all that are waited for.

    A judgement may take long, so its own deadline says nothing about a hub that hangs; a hub that
    does not even answer a beat does.

    Args:
        beat: asks the hub for a sign of life.
        name: how errors call the hub.
        every_s: between two beats; an answer to one has to come within this time too.
        patience_s: how long the hub may be silent.
    """

    def __init__(
        self, beat: Callable[[], Awaitable[object]], *, name: str, every_s: float, patience_s: float
    ) -> None:
        self._beat = beat
        self._name = name
        self._every_s = every_s
        self._patience_s = patience_s
        self._beat_at: float | None = None
        self._silent_since: float | None = None

    async def answer(self, answer: asyncio.Future[T]) -> T:
        """The result of `answer`; whoever made it cancels it when this raises.

        Raises:
            HubLostError: the hub gave no sign of life for `patience_s`.
        """
        while True:
            done, _ = await asyncio.wait({answer}, timeout=self._every_s)
            if done:
                self._silent_since = None
                return answer.result()
            await self._look()

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._beat_at is not None and 0 <= now - self._beat_at < self._every_s:
            return
        if self._silent_since is not None and now - self._silent_since > self._patience_s:
            raise HubLostError(f"the hub {self._name} did not answer for {self._patience_s:g} s")
        self._beat_at = now
        try:
            async with asyncio.timeout(self._every_s):
                await self._beat()
        except Exception:  # noqa: BLE001 - whatever it is: the answer that is waited for tells
            self._silent_since = self._silent_since or now
        else:
            self._silent_since = None
