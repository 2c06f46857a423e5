"""A process's connection to a hub: a row travels over it for a tenth of what an actor's call costs.

Messages are pickled, as they are in calls. Whoever connects has to name a session first, which is
a secret that only calls of the actor hand out, and the hub answers with a secret of its own, so
that neither side unpickles what a stranger sent.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Generic, TypeVar

import msgspec

from zerowait.hub.rpc.codec import Pickles, decoded_parts, encoded_parts
from zerowait.hub.rpc.sessions import CallResult

T = TypeVar("T")
R = TypeVar("R")

SECRET_CHARS: Final = 32
REST_S: Final = 0.001
"""After a message; what gathers meanwhile is one message, and what comes alone is not late."""
_LENGTH_BYTES: Final = 8
_CONNECT_S: Final = 5.0
_SIGN_S: Final = 30.0
_LOOKS: Final = 4
"""At the time without a message, before it is too long: a process that was stopped looks once."""


class RpcAddress(msgspec.Struct, frozen=True):
    """Where a hub can be connected to.

    Args:
        host, port: of the hub's process.
        sign: what it answers to whoever names a session, so that nobody else is taken for it.
    """

    host: str
    port: int
    sign: str


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


class RpcConnection(Generic[T, R]):
    """A session over a connection, seen from the process that asks.

    Args:
        reader, writer: the connection.
        dumps: pickles what is handed in.
        beat_s: a hub that hears nothing for much longer ends the session.
        silence_s: how long the hub may say nothing while this process could have heard it.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        dumps: Pickles,
        beat_s: float,
        silence_s: float,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._dumps = dumps
        self._beat_s = beat_s
        self._loop = asyncio.get_running_loop()
        self._said_at = self._loop.time()
        self._look_s = silence_s / _LOOKS
        self._looks = 0
        self._timer = self._loop.call_later(self._look_s, self._look)
        self._arrived: list[int] = []
        self.heard = False
        """Whether the hub said anything at all."""
        self.over = False
        """Whether the connection ended, and not by `close`."""

    async def submit(self, items: list[tuple[int, T]], given_up: list[int]) -> bool:
        """Hand in and give up, which includes what has arrived; False where it is over.

        Raises:
            TimeoutError: as `collect` does.
        """
        self._said_at = self._loop.time()
        arrived, self._arrived = self._arrived, []
        try:
            self._writer.write(message(encoded_parts(items, given_up + arrived, dumps=self._dumps)))
            await self._writer.drain()
        except OSError:
            self._end()
            return False
        await asyncio.sleep(REST_S)
        return True

    async def collect(self) -> list[CallResult[R]] | None:
        """What has come, or nothing, as a sign of life; None where the connection is over.

        Raises:
            TimeoutError: the hub said nothing for too long.
        """
        body = await received(self._reader)
        if body is None:
            self._end()
            return None
        self.heard, self._looks = True, 0
        results: list[CallResult[R]] = decoded_parts(body)[0]
        if self._loop.time() - self._said_at >= self._beat_s:
            await self.submit([], [])
        self._arrived += [number for number, _ in results]
        return results

    def close(self) -> None:
        """End the connection, and the session with it."""
        self._timer.cancel()
        if not self._loop.is_closed():
            # a hub that reads no more would keep what is left to send
            self._writer.transport.abort()

    def _end(self) -> None:
        if self._looks > _LOOKS:
            raise TimeoutError
        self.over = True

    def _look(self) -> None:
        """Time counts while this process runs: the hub may have spoken to one that was stopped."""
        self._looks += 1
        if self._looks > _LOOKS:
            self.close()
        else:
            self._timer = self._loop.call_later(self._look_s, self._look)


async def connected(
    door: RpcAddress, secret: str, *, dumps: Pickles, beat_s: float, silence_s: float
) -> RpcConnection[Any, Any] | None:
    """The session of that name over a connection; None where there is no way to the hub's port."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(door.host, door.port)
    except OSError:  # a TimeoutError is one, too
        return None
    known = False
    try:
        writer.write(secret.encode())
        async with asyncio.timeout(_SIGN_S):
            known = await reader.readexactly(SECRET_CHARS) == door.sign.encode()
    except (asyncio.IncompleteReadError, OSError):
        return None
    finally:
        if not known:
            writer.transport.abort()
    if not known:
        return None
    return RpcConnection(reader, writer, dumps=dumps, beat_s=beat_s, silence_s=silence_s)
