"""The transport: HTTP/1.1 over pooled connections, made for thousands of short calls a second.

aiohttp's client does the same with several times the work per call.
What it does not do is left out on purpose: redirects, cookies, HTTP/2.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from zerowait.client.http.connection import Connection
from zerowait.client.http.proxy import Proxy
from zerowait.client.transport import Reply, Request, TransportError
from zerowait.errors import ClosedError
from zerowait.types import FailureKind

_ADDRESSES_KEPT_S: Final = 10.0
_NEXT_ADDRESS_AFTER_S: Final = 0.25  # RFC 8305


class ConnectionPool:
    """The connections to one host and port. It belongs to one event loop.

    Args:
        host, port: of the server.
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
        self._address = (host, port) if proxy is None else (proxy.host, proxy.port)
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
        """An idle connection, the one used last; None if there is none."""
        now_s = asyncio.get_running_loop().time()
        while self._idle:
            connection, since_s = self._idle.popitem()
            if since_s + self._keepalive_s > now_s and connection.is_usable:
                return connection
            connection.abort()
        return None

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next request: its reply has come."""
        if self._closed or not connection.is_usable:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        self._idle[connection] = loop.time()
        if self._sweeper is None:
            self._sweeper = loop.call_later(self._keepalive_s, self._sweep)

    def close_idle(self) -> None:
        """Close all idle connections, after one of them turned out to be stale.

        That one was idle for the shortest time, as the last used is taken first. A load balancer
        that restarts, or drops idle connections, makes all of them stale.
        """
        while self._idle:
            self._idle.popitem()[0].abort()

    async def dial(self, timeout_s: float) -> Connection:
        """A new connection.

        Raises:
            TransportError: there is none, and so nothing was sent.
            ClosedError: closed meanwhile.
        """
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._connect()
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

    async def _connect(self) -> Connection:
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
                try:
                    found = await loop.getaddrinfo(*self._address, type=socket.SOCK_STREAM)
                    self._addresses = deque(found)
                except socket.gaierror:
                    if not self._addresses:
                        raise
                    # the addresses that it gave before are used while the name server is away
                self._addresses_until_s = loop.time() + _ADDRESSES_KEPT_S
        self._addresses.rotate(-1)
        return list(self._addresses)

    def _forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._idle.pop(connection, None)
        if not self._open:
            self._none_open.set()

    def _sweep(self) -> None:
        """Close what has been idle for too long; runs again when the next one has."""
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


_CLOSING_S: Final = 5.0


class _Head:
    """The HTTP head up to the length, and the connection pool; the same for all of an endpoint."""

    __slots__ = ("headers", "origin", "prefix")

    def __init__(self, origin: ConnectionPool, path: str, headers: Mapping[str, str]) -> None:
        self.origin = origin
        self.headers = headers
        lines = [f"POST {path} HTTP/1.1"]
        if not any(name.lower() == "host" for name in headers):
            lines.append(f"Host: {origin.authority}")
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.prefix = "\r\n".join([*lines, "Content-Length: "]).encode()


class HttpTransport:
    """Sends over pooled connections, as many at once as its callers send.

    It belongs to the loop in which it sends first.

    Args:
        connect_timeout_s: the longest wait for a TCP and TLS connection.
        keepalive_s: how long an idle connection is kept: below the 5 s after which vLLM and
            other uvicorn servers close it, so that we seldom send into a closing connection.
    """

    def __init__(self, *, connect_timeout_s: float = 10.0, keepalive_s: float = 4.0) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._keepalive_s = keepalive_s
        self._heads: dict[tuple[str, str | None], _Head] = {}
        self._origins: dict[tuple[str, str, int, str | None], ConnectionPool] = {}
        self._tls: ssl.SSLContext | None = None
        self._closed = False

    async def send(self, request: Request, *, timeout_s: float) -> Reply:
        """The whole reply to `request`; see `zerowait.client.transport.Transport`."""
        if self._closed:
            raise ClosedError("the transport was closed; open a new one")
        head = self._heads.get((request.url, request.proxy))
        if head is None or head.headers is not request.headers:
            head = self._head(request)
        body, origin = request.body, head.origin
        connection, spent_s = origin.idle(), 0.0
        if connection is None:
            clock = asyncio.get_running_loop().time
            began_s = clock()
            connection = await origin.dial(min(self._connect_timeout_s, timeout_s))
            spent_s = clock() - began_s
        try:
            reply = await connection.exchange(
                b"%b%d\r\n\r\n%b" % (head.prefix, len(body), body),
                timeout_s=timeout_s,
                spent_s=spent_s,
            )
        except TransportError as error:
            if error.reused_connection:
                origin.close_idle()
            raise
        origin.give_back(connection)
        return reply

    async def aclose(self) -> None:
        """Close every connection. Idempotent."""
        self._closed = True
        for origin in self._origins.values():
            await origin.aclose(_CLOSING_S)

    def _head(self, request: Request) -> _Head:
        import yarl

        url = yarl.URL(request.url)
        is_tls = url.scheme == "https"
        proxy = None if request.proxy is None else Proxy(request.proxy)
        key = (url.scheme, url.raw_host or "", url.port or 0, request.proxy)
        origin = self._origins.get(key)
        if origin is None:
            origin = self._origins[key] = ConnectionPool(
                *key[1:3],
                authority=url.host_port_subcomponent or "",
                tls=self._tls_context() if is_tls else None,
                keepalive_s=self._keepalive_s,
                proxy=proxy,
            )
        path, headers = url.raw_path_qs, request.headers
        if proxy is not None and not is_tls:  # RFC 9112, 3.2.2: to a proxy, the whole address
            path = f"http://{origin.authority}{path}"
            headers = {**headers, **proxy.headers}
        head = _Head(origin, path, headers)
        head.headers = request.headers
        self._heads[request.url, request.proxy] = head
        return head

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls
