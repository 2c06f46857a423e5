"""The transport over aiohttp, with a session tuned for many short calls to few hosts."""

from __future__ import annotations

import asyncio
import io
import socket
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from zerowait.client.transport import (
    LONGEST_REPLY_BYTES,
    Reply,
    ReplyTooLongError,
    Request,
    TransportError,
    TransportFailure,
)
from zerowait.errors import ClosedError
from zerowait.types import FailureKind

if TYPE_CHECKING:
    import aiohttp
    import yarl

_AUTOMATIC_HEADERS: Final = ("Accept", "Accept-Encoding", "User-Agent")
_WARNS_ABOVE_BYTES: Final = 2**20


class _Dial:
    """Whether an attempt opened a new connection."""

    __slots__ = ("dialled",)

    def __init__(self) -> None:
        self.dialled = False


_dial: ContextVar[_Dial] = ContextVar("_dial")


class AiohttpTransport:
    """Sends over pooled connections, as many at once as its callers send.

    It belongs to the loop in which it sends first.

    Args:
        connect_timeout_s: the longest wait for a TCP and TLS connection.
        keepalive_s: how long an idle connection is kept: below the 5 s after which vLLM and
            other uvicorn servers close it, so that we seldom send into a closing connection.
        trust_env: whether ``HTTPS_PROXY``, ``NO_PROXY`` and ``.netrc`` are honoured.
    """

    def __init__(
        self,
        *,
        connect_timeout_s: float = 10.0,
        keepalive_s: float = 4.0,
        trust_env: bool = False,
    ) -> None:
        import aiohttp

        self._connect_timeout_s = connect_timeout_s
        self._keepalive_s = keepalive_s
        self._trust_env = trust_env
        self._caught = (aiohttp.ClientError, OSError)
        self._urls: dict[str, yarl.URL] = {}
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def send(self, request: Request, *, timeout_s: float) -> Reply:
        """The whole reply to `request`; see `zerowait.client.transport.Transport`."""
        session = self._session or self._open()
        body = request.body
        dial = _Dial()
        token = _dial.set(dial)
        try:
            async with (
                asyncio.timeout(timeout_s),
                session.post(
                    self._urls.get(request.url) or self._url(request.url),
                    # aiohttp warns about large bytes; a stream is written in chunks
                    data=body if len(body) <= _WARNS_ABOVE_BYTES else io.BytesIO(body),
                    headers=request.headers,
                    allow_redirects=False,
                    proxy=request.proxy,
                ) as response,
            ):
                content = await _read(response)
                headers = {name.lower(): value for name, value in response.headers.items()}
                return Reply(response.status, headers, content)
        except self._caught as error:
            failure = _translate(error, timeout_s, dialled=dial.dialled)
        finally:
            _dial.reset(token)
        # raised out here: the library's error holds the request's headers, and with them the key
        raise failure

    async def aclose(self) -> None:
        """Close every connection. Idempotent."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            # closed transports drop their sockets in the loop's next turn
            await asyncio.sleep(0)

    def _url(self, text: str) -> yarl.URL:
        import yarl

        url = self._urls[text] = yarl.URL(text)
        return url

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._closed:
            raise ClosedError("the transport was closed; open a new one")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,  # the limiter decides how many; a second limit would hide in here
                keepalive_timeout=self._keepalive_s,
                socket_factory=_open_socket,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_AUTOMATIC_HEADERS,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout_s),
            trust_env=self._trust_env,
        )
        return self._session


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The whole body, unpacked; one without an end must not fill the memory."""
    parts, size = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > LONGEST_REPLY_BYTES:
            response.close()
            raise ReplyTooLongError
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _open_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket for aiohttp, and a note that this attempt needed one."""
    dial = _dial.get(None)
    if dial is not None:
        dial.dialled = True
    family, kind, protocol = address[:3]
    return socket.socket(family, kind, protocol)


@cache
def _meanings() -> tuple[tuple[type[BaseException], TransportFailure, str, bool], ...]:
    """Error, kind, meaning, and whether a connection had been there; the first match counts."""
    import aiohttp

    unreachable: Final = FailureKind.UNREACHABLE
    return (
        (aiohttp.ConnectionTimeoutError, unreachable, "no connection in time", False),
        (TimeoutError, FailureKind.TIMEOUT, "no complete reply in {timeout_s:g} s", False),
        (aiohttp.ClientConnectorDNSError, unreachable, "the host's name is unknown", False),
        (aiohttp.ClientConnectorCertificateError, unreachable, "certificate refused", False),
        (aiohttp.ClientSSLError, unreachable, "TLS failed", False),
        (aiohttp.ClientHttpProxyError, unreachable, "the proxy refused: {status}", False),
        (aiohttp.ClientConnectorError, unreachable, "no connection", False),
        (aiohttp.ServerDisconnectedError, unreachable, "closed without an answer", True),
        (aiohttp.ClientPayloadError, unreachable, "the reply was cut short", True),
        (aiohttp.ClientResponseError, unreachable, "the reply is not HTTP", True),
        (aiohttp.InvalidURL, unreachable, "the URL is not valid", False),
        (Exception, unreachable, "the connection broke", True),
    )


def _translate(error: BaseException, timeout_s: float, *, dialled: bool) -> TransportError:
    kind, meaning, connected = next(row[1:] for row in _meanings() if isinstance(error, row[0]))
    # only fixed words: the library's own messages quote URLs and headers
    cause = getattr(error, "strerror", None)
    status = getattr(error, "status", "")
    said = meaning.format(timeout_s=timeout_s, status=status) + (f" ({cause})" if cause else "")
    sent = connected or kind is FailureKind.TIMEOUT
    return TransportError(kind, said, reused_connection=connected and not dialled, sent=sent)
