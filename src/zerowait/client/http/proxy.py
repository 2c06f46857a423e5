"""HTTP proxies: selects the one of an endpoint, and opens tunnels through it."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import re
import socket
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import (  # type: ignore[attr-defined] # typeshed leaves one out
    getproxies_environment,
    proxy_bypass_environment,
)

from zerowait.client.transport import TransportError
from zerowait.config.endpoint import Endpoint
from zerowait.config.urls import check_proxy
from zerowait.errors import ConfigError
from zerowait.types import FailureKind

_LONGEST_HEAD_BYTES: Final = 65_536
_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3})[ \t]*([^\r\n]*)")


def proxy_for(endpoint: Endpoint, shared: str | None) -> str | None:
    """The URL of the proxy that requests to `endpoint` go through; None: they go directly.

    Args:
        endpoint: as it is configured; its own ``proxy`` counts before the shared one.
        shared: ``traffic.proxy``.

    Raises:
        ConfigError: the environment names a proxy of an unsupported kind.
    """
    wanted = endpoint.proxy or shared
    if wanted in (None, "off"):
        return None
    return _in_environment(endpoint.url) if wanted == "env" else wanted


def _in_environment(url: str) -> str | None:
    """What ``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` say of `url`."""
    proxies = getproxies_environment()
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or _is_excepted(host, parts.netloc.rpartition("@")[2], proxies):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    name = f"{parts.scheme}_proxy" if proxies.get(parts.scheme) else "all_proxy"
    try:
        check_proxy(f"the environment's {name.upper()}", proxy)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return proxy


def _is_excepted(host: str, netloc: str, proxies: dict[str, str]) -> bool:
    """Whether ``NO_PROXY`` names the host, a domain of it, or a network that its address is in."""
    if proxy_bypass_environment(netloc, proxies):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for entry in proxies.get("no", "").split(","):
        try:
            if address in ipaddress.ip_network(entry.strip().strip("[]"), strict=False):
                return True
        except ValueError:
            continue
    return False


class Proxy:
    """One HTTP proxy; its password is not shown.

    Args:
        url: such as ``http://user:password@proxy:3128``.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host = parts.hostname or ""
        self.port = parts.port or 80
        self.headers: dict[str, str] = {}
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            basic = base64.b64encode(user.encode()).decode()
            self.headers["Proxy-Authorization"] = f"Basic {basic}"

    def __repr__(self) -> str:
        return f"Proxy({self.host}:{self.port})"

    async def connect(self, sock: socket.socket, host: str, port: int) -> None:
        """Open a tunnel to `host` and `port` over `sock`, which is connected to the proxy.

        Raises:
            TransportError: the proxy will not, or does not speak HTTP; nothing was sent to `host`.
        """
        loop = asyncio.get_running_loop()
        name = f"[{host}]" if ":" in host else host
        await loop.sock_sendall(sock, self._asking(f"{name}:{port}"))
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            # byte by byte: what follows the head belongs to TLS, and must stay in the socket
            byte = await loop.sock_recv(sock, 1)
            if not byte or len(head) > _LONGEST_HEAD_BYTES:
                raise _refused("the proxy closed the connection without an answer")
            head += byte
        status = _STATUS.match(head)
        if status is None:
            raise _refused("the proxy does not speak HTTP")
        if not 200 <= int(status[1]) < 300:
            words = status[2].decode("latin-1").strip()
            raise _refused(f"the proxy refused: {int(status[1])} {words}".rstrip())

    def _asking(self, authority: str) -> bytes:
        lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode()


def _refused(why: str) -> TransportError:
    return TransportError(FailureKind.UNREACHABLE, why, sent=False)
