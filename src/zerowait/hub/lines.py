"""A reply in lines, each sent as soon as it is known."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from zerowait.hub import wire
from zerowait.types import Reward

NDJSON: Final = "application/x-ndjson"


class Lines:
    """A reply of JSON lines, of which nothing is sent before the first line is known.

    So whoever asks for what cannot be gets the status of his mistake, and not a 200.
    """

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._response = web.StreamResponse(headers={"Content-Type": NDJSON})

    @property
    def begun(self) -> bool:
        """Whether the status has been sent."""
        return self._response.prepared

    async def write(self, index: int, reward: Reward) -> None:
        """Send one line."""
        await self._begin()
        await self._response.write(wire.line(index, reward))

    async def end(self, complaint: bytes = b"") -> web.StreamResponse:
        """The whole reply; a complaint is its last line and says why lines are missing."""
        await self._begin()
        await self._response.write_eof(complaint + b"\n" if complaint else b"")
        return self._response

    async def _begin(self) -> None:
        if not self.begun:
            await self._response.prepare(self._request)
