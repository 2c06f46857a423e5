"""A process's connection to a hub: a row travels over it for a tenth of what an actor's call costs.

Messages are pickled, as they are in calls. Whoever connects has to name a session first, which is
a secret that only calls of the actor hand out; nothing is unpickled before.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from zerowait.errors import ZerowaitError
from zerowait.hub.sessions import Result

T = TypeVar("T")
R = TypeVar("R")

SECRET_CHARS: Final = 32
REST_S: Final = 0.001
"""After a message; what gathers meanwhile is one message, and what comes alone is not late."""
_LENGTH_BYTES: Final = 4
_CONNECT_S: Final = 5.0


class Door(msgspec.Struct, frozen=True):
    """Where a hub can be connected to."""

    host: str
    port: int


async def received(reader: asyncio.StreamReader) -> bytes | None:
    """The next message, or None: the connection is over."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES))
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, OSError):
        return None


def message(body: bytes) -> bytes:
    """`body` as it is sent."""
    return len(body).to_bytes(_LENGTH_BYTES) + body


class Channel(Generic[T, R]):
    """A session over a connection, seen from the process that asks.

    Args:
        reader, writer: the connection.
        dumps: pickles what is handed in.
        beat_s: a hub that hears nothing for much longer ends the session.
        silence_s: how long the hub may say nothing.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        dumps: Callable[[Any], bytes],
        beat_s: float,
        silence_s: float,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._dumps = dumps
        self._beat_s = beat_s
        self._silence_s = silence_s
        self._clock = asyncio.get_running_loop().time
        self._said_at = self._clock()

    async def submit(self, items: list[tuple[int, T]], given_up: list[int]) -> bool:
        """Hand in and give up; False where the connection is over."""
        self._said_at = self._clock()
        try:
            self._writer.write(message(self._dumps((items, given_up))))
            await self._writer.drain()
        except OSError:
            return False
        await asyncio.sleep(REST_S)
        return True

    async def collect(self) -> list[Result[R]] | None:
        """What has come, or nothing, as a sign of life; None where the connection is over.

        Raises:
            TimeoutError: the hub said nothing for too long.
            ZerowaitError: it could not read what it was sent.
        """
        async with asyncio.timeout(self._silence_s):
            body = await received(self._reader)
        if body is None:
            return None
        if self._clock() - self._said_at >= self._beat_s:
            await self.submit([], [])
        results: list[Result[R]] | ZerowaitError = pickle.loads(body)  # noqa: S301 - from our hub
        if isinstance(results, ZerowaitError):
            raise results
        return results

    def close(self) -> None:
        """End the connection, and the session with it."""
        self._writer.close()


async def connected(
    door: Door, secret: str, *, dumps: Callable[[Any], bytes], beat_s: float, silence_s: float
) -> Channel[Any, Any] | None:
    """The session of that name over a connection; None where there is no way to the hub's port."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(door.host, door.port)
    except OSError:  # a TimeoutError is one, too
        return None
    writer.write(secret.encode())
    return Channel(reader, writer, dumps=dumps, beat_s=beat_s, silence_s=silence_s)
