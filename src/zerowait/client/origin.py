"""The connections to one server: opened when there is none to spare, closed when they idle."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from functools import partial
from typing import Any, Final

from zerowait.client.connection import Connection
from zerowait.client.port import TransportError
from zerowait.client.proxy import Proxy
from zerowait.errors import ClosedError
from zerowait.types import FailureKind

_ADDRESSES_KEPT_S: Final = 10.0
_NEXT_ADDRESS_AFTER_S: Final = 0.25  # RFC 8305


class Origin:
    """One host and port, and the connections to it. It belongs to one loop.

    Args:
        host, port: where it listens.
        authority: both, as the ``Host`` header names them.
        tls: None for plain HTTP.
        keepalive_s: how long an idle connection is kept.
        proxy: what connections go through; None: they go there directly.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        authority: str,
        tls: ssl.SSLContext | None,
        keepalive_s: float,
        proxy: Proxy | None = None,
    ) -> None:
        self.authority = authority
        self._host = host
        self._port = port
        self._tls = tls
        self._proxy = proxy
        self._dialled_at = (host, port) if proxy is None else (proxy.host, proxy.port)
        self._keepalive_s = keepalive_s
        self._open: set[Connection] = set()
        self._idle: dict[Connection, float] = {}  # and since when, the latest last
        self._sweeper: asyncio.TimerHandle | None = None
        self._resolving = asyncio.Lock()
        self._addresses: deque[Any] = deque()
        self._addresses_until_s = 0.0
        self._none_open = asyncio.Event()
        self._closed = False

    def idle(self) -> Connection | None:
        """A connection to spare, the one used last, or None."""
        now_s = asyncio.get_running_loop().time()
        while self._idle:
            connection, since_s = self._idle.popitem()
            if since_s + self._keepalive_s > now_s and connection.is_usable:
                return connection
            connection.abort()
        return None

    def give_back(self, connection: Connection) -> None:
        """Its reply has come; the next one may have it."""
        if self._closed or not connection.is_usable:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        self._idle[connection] = loop.time()
        if self._sweeper is None:
            self._sweeper = loop.call_later(self._keepalive_s, self._sweep)

    async def dial(self, timeout_s: float) -> Connection:
        """A new connection.

        Raises:
            TransportError: there is none, and so nothing was sent.
            ClosedError: closed meanwhile.
        """
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._dialled()
        except TransportError as error:
            failure = error
        except TimeoutError:
            failure = _no("no connection in time")
        except OSError as error:
            failure = _no("no connection", error)
        else:
            if self._closed:
                connection.abort()
                raise ClosedError("the transport was closed; open a new one")
            return connection
        # raised out here, so that its cause and with it our frames are not shown
        raise failure

    async def aclose(self, timeout_s: float) -> None:
        """Close every connection, and wait until they are. Idempotent."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._idle.clear()
        for connection in list(self._open):
            connection.abort("the transport was closed")
        async with asyncio.timeout(timeout_s):
            while self._open:
                self._none_open.clear()
                await self._none_open.wait()

    async def _dialled(self) -> Connection:
        import aiohappyeyeballs

        loop = asyncio.get_running_loop()
        try:
            addresses = await self._resolved()
        except socket.gaierror as error:
            whose = "host" if self._proxy is None else "proxy"
            raise _no(f"the {whose}'s name is unknown", error) from None
        sock = await aiohappyeyeballs.start_connection(
            addresses, happy_eyeballs_delay=_NEXT_ADDRESS_AFTER_S, loop=loop
        )
        if self._proxy is not None and self._tls is not None:
            try:
                await self._proxy.connect(sock, self._host, self._port)
            except BaseException:
                sock.close()
                raise
        name = self._host if self._tls is not None else None
        try:
            _, connection = await loop.create_connection(
                partial(Connection, loop, self._forget),
                sock=sock,
                ssl=self._tls,
                server_hostname=name,
            )
        except ssl.SSLCertVerificationError as error:
            raise _no("certificate refused", error) from None
        except OSError as error:  # SSLError is one
            raise _no("TLS failed" if self._tls else "no connection", error) from None
        if connection.is_open:
            self._open.add(connection)
        return connection

    async def _resolved(self) -> list[Any]:
        """The host's addresses; of several, another one comes first each time."""
        loop = asyncio.get_running_loop()
        async with self._resolving:
            if loop.time() >= self._addresses_until_s:
                found = await loop.getaddrinfo(*self._dialled_at, type=socket.SOCK_STREAM)
                self._addresses = deque(found)
                self._addresses_until_s = loop.time() + _ADDRESSES_KEPT_S
        self._addresses.rotate(-1)
        return list(self._addresses)

    def _forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._idle.pop(connection, None)
        if not self._open:
            self._none_open.set()

    def _sweep(self) -> None:
        """Close what has idled for too long, and come back when the next one has."""
        loop = asyncio.get_running_loop()
        self._sweeper = None
        while self._idle:
            connection, since_s = next(iter(self._idle.items()))
            if since_s + self._keepalive_s > loop.time():
                self._sweeper = loop.call_at(since_s + self._keepalive_s, self._sweep)
                return
            del self._idle[connection]
            connection.abort()


def _no(why: str, error: OSError | None = None) -> TransportError:
    cause = None if error is None else error.strerror
    return TransportError(FailureKind.UNREACHABLE, f"{why} ({cause})" if cause else why, sent=False)
