"""Whose work it is: what a client asked for is given up when the client is gone for good."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from zerowait.errors import HubLostError

T = TypeVar("T")


class _Client:
    """When a client was heard of last, and what is being done for it."""

    __slots__ = ("calls", "heard_at", "timer")

    timer: asyncio.TimerHandle

    def __init__(self, now: float) -> None:
        self.heard_at = now
        self.calls: set[asyncio.Timeout] = set()


class Leases:
    """Runs work for clients, and gives up that of a client which fell silent.

    A killed process cannot cancel what it asked for; without this, requests that nobody waits for
    would be paid for and take the places of others. Hearing of a client costs the same however
    much it waits for. It belongs to one event loop.

    Args:
        silence_s: a client that was not heard of for so long is gone.
    """

    def __init__(self, *, silence_s: float) -> None:
        self._silence_s = silence_s
        self._clients: dict[str, _Client] = {}

    def __len__(self) -> int:
        """Clients for which something is being done."""
        return len(self._clients)

    def heard(self, client: str) -> None:
        """Note that `client` is alive."""
        known = self._clients.get(client)
        if known is not None:
            known.heard_at = asyncio.get_running_loop().time()

    async def run(self, client: str, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work`, done for `client`.

        Raises:
            HubLostError: the client fell silent before it was done.
        """
        known = self._enter(client)
        call = asyncio.timeout(None)
        try:
            async with call:
                known.calls.add(call)
                return await work()
        except TimeoutError:
            if not call.expired():
                raise
            raise HubLostError(
                f"given up, because its client was silent for {self._silence_s:g} s"
            ) from None
        finally:
            self._leave(client, known, call)

    def _enter(self, client: str) -> _Client:
        loop = asyncio.get_running_loop()
        known = self._clients.get(client)
        if known is None:
            known = self._clients[client] = _Client(loop.time())
            known.timer = loop.call_later(self._silence_s, self._check, known)
        known.heard_at = loop.time()
        return known

    def _leave(self, client: str, known: _Client, call: asyncio.Timeout) -> None:
        known.calls.discard(call)
        if not known.calls:
            known.timer.cancel()
            if self._clients.get(client) is known:
                del self._clients[client]

    def _check(self, known: _Client) -> None:
        loop = asyncio.get_running_loop()
        gone_at = known.heard_at + self._silence_s
        if loop.time() < gone_at:
            known.timer = loop.call_at(gone_at, self._check, known)
            return
        for call in known.calls:
            call.reschedule(loop.time())
