"""The transport: HTTP/1.1 over pooled connections, made for thousands of short calls a second.

aiohttp's client does the same with several times the work per call.
What it does not do is left out on purpose: redirects, cookies, HTTP/2.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Final

from zerowait.client.origin import Origin
from zerowait.client.port import Reply, Request
from zerowait.client.proxy import Proxy
from zerowait.errors import ClosedError

_CLOSING_S: Final = 5.0


class _Head:
    """The bytes before a request's length, and where they go; the same for all of an endpoint."""

    __slots__ = ("headers", "origin", "prefix")

    def __init__(self, origin: Origin, path: str, headers: Mapping[str, str]) -> None:
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
        self._origins: dict[tuple[str, str, int, str | None], Origin] = {}
        self._tls: ssl.SSLContext | None = None
        self._closed = False

    async def send(self, request: Request, *, timeout_s: float) -> Reply:
        """The whole reply to `request`; see `zerowait.client.port.Transport`."""
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
        reply = await connection.exchange(
            b"%b%d\r\n\r\n%b" % (head.prefix, len(body), body), timeout_s=timeout_s, spent_s=spent_s
        )
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
            origin = self._origins[key] = Origin(
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
