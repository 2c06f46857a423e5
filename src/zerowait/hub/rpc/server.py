"""The hub's side of connections: each carries one session."""

from __future__ import annotations

import asyncio
import logging
import pickle
import secrets
from typing import Final, Generic, TypeVar

from zerowait.hub.rpc.codec import decoded_parts, encoded_parts
from zerowait.hub.rpc.connection import REST_S, SECRET_CHARS, RpcAddress, message, received
from zerowait.hub.rpc.sessions import Sessions

T = TypeVar("T")
R = TypeVar("R")

_NAMED_WITHIN_S: Final = 10.0

_log = logging.getLogger(__name__)


class RpcServer(Generic[T, R]):
    """Listens for those who know the name of a session; it belongs to one event loop.

    Args:
        sessions: where they are known.
        host: the address to listen on, at a port that is free; None: nobody can connect.
    """

    def __init__(self, sessions: Sessions[T, R], host: str | None) -> None:
        self._sessions = sessions
        self._host = host
        self._sign = secrets.token_hex(SECRET_CHARS // 2)
        self._server: asyncio.Server | None = None
        self._opening = asyncio.Lock()

    async def door(self) -> RpcAddress | None:
        """Where it listens, from now on at the latest; None where it cannot."""
        async with self._opening:
            if self._server is None and self._host is not None:
                try:
                    self._server = await asyncio.start_server(self._serve, self._host, 0)
                except OSError as error:
                    _log.warning("nobody can connect to %s: %s", self._host, error)
                    self._host = None
        if self._server is None or self._host is None:
            return None
        return RpcAddress(self._host, self._server.sockets[0].getsockname()[1], self._sign)

    def close(self) -> None:
        """Let nobody in any more; those who are connected stay until they leave."""
        self._host = None
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = await _named(reader)
        if name not in self._sessions:
            writer.close()
            return
        writer.write(self._sign.encode())
        writing = asyncio.create_task(self._write(name, writer))
        try:
            await self._read(name, reader)
        finally:
            self._sessions.cut(name)
            writing.cancel()
            writer.transport.abort()

    async def _read(self, name: str, reader: asyncio.StreamReader) -> None:
        """Begins what is handed in, until the connection or the session is over."""
        while (body := await received(reader)) is not None:
            if not self._sessions.submit(name, *decoded_parts(body)):
                return

    async def _write(self, name: str, writer: asyncio.StreamWriter) -> None:
        """Sends what has come, until the connection or the session is over."""
        try:
            while (results := await self._sessions.collect(name, heard=False)) is not None:
                writer.write(message(encoded_parts(results, (), dumps=pickle.dumps)))
                await writer.drain()
                await asyncio.sleep(REST_S)
        except OSError:
            return  # the reading side sees it, too
        finally:
            writer.transport.abort()


async def _named(reader: asyncio.StreamReader) -> str:
    """The session that whoever connected names; empty where none comes soon."""
    try:
        async with asyncio.timeout(_NAMED_WITHIN_S):
            return (await reader.readexactly(SECRET_CHARS)).decode(errors="replace")
    except (asyncio.IncompleteReadError, OSError):
        return ""
