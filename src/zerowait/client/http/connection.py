"""One HTTP/1.1 connection, which carries one request at a time."""

from __future__ import annotations

import asyncio
import math
import zlib
from collections.abc import Callable
from typing import Final, cast

import httptools

from zerowait.client.transport import (
    LONGEST_REPLY_BYTES,
    Reply,
    ReplyTooLongError,
    TransportError,
    TransportFailure,
)
from zerowait.types import FailureKind

_GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS
_UNPACKED: Final = frozenset({"", "identity", "gzip", "x-gzip", "deflate", "utf-8", "none"})
_WITH_LENGTH: Final = frozenset({"content-length", "transfer-encoding"})


class Connection(asyncio.Protocol):
    """A connection to one server; the loop calls its protocol methods.

    Args:
        loop: the loop it belongs to.
        lost: called when it is closed, by either side.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, lost: Callable[[Connection], None]) -> None:
        self._loop = loop
        self._lost = lost
        self._wire: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Reply | TransportError] | None = None
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._received_bytes = 0
        self._has_head = self._has_ended = self._has_served = False
        self._timer: asyncio.TimerHandle | None = None
        self._rings_s = self._due_s = math.inf  # when the timer rings, and when the request ends
        self._timeout_s = math.inf

    @property
    def is_usable(self) -> bool:
        """Whether another request may be sent over it."""
        return self._has_ended and self._wire is not None and not self._wire.is_closing()

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed it."""
        return self._wire is not None

    async def exchange(self, request: bytes, *, timeout_s: float, spent_s: float = 0.0) -> Reply:
        """The whole reply to an encoded request. Cancelling the call closes the connection.

        Args:
            request: head and body.
            timeout_s: the longest that it may take.
            spent_s: how much of that is over.

        Raises:
            TransportError: no complete reply came.
        """
        if self._wire is None:
            raise self._failure("the connection broke")
        answer: asyncio.Future[Reply | TransportError] = self._loop.create_future()
        self._answer = answer
        self._received_bytes = 0
        self._has_head = self._has_ended = False
        self._wire.write(request)
        del request  # it holds the key, and a traceback may show local variables
        self._timeout_s = timeout_s
        self._due_s = self._loop.time() + timeout_s - spent_s
        # a timer that rings earlier, for a request before, is set anew when it rings: so a
        # connection in use sets one timer for many requests
        if self._due_s < self._rings_s:
            self._stop_timer()
            self._set_timer()
        try:
            outcome = await answer
        except BaseException:
            self._answer = None
            self.abort()
            raise
        self._due_s = math.inf
        if isinstance(outcome, TransportError):
            raise outcome
        self._has_served = True
        return outcome

    def abort(self, why: str = "the connection was closed") -> None:
        """Close it now; a caller that waits for a reply gets `why` as its error."""
        self._has_ended = False
        if self._answer is not None:
            self._end(self._failure(why))
        self._stop_timer()
        if self._wire is not None:
            self._wire.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The loop has connected it."""
        self._wire = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        """The loop has read some of a reply."""
        self._received_bytes += len(data)
        if self._answer is None:
            self.abort()  # no request is open: the next reply on it would be that of another one
        elif self._received_bytes > LONGEST_REPLY_BYTES:
            self._end(ReplyTooLongError())
            self.abort()
        else:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserError:
                self.abort("the reply is not HTTP")

    def connection_lost(self, exc: Exception | None) -> None:
        """The loop has closed it."""
        self._wire = None
        self._stop_timer()
        if self._answer is not None:
            if exc is not None:
                cause = getattr(exc, "strerror", None)
                self._end(self._failure("the connection broke" + (f" ({cause})" if cause else "")))
            elif not self._has_head:
                self._end(self._failure("closed without an answer"))
            elif self._headers.keys() & _WITH_LENGTH:
                self._end(self._failure("the reply was cut short"))
            else:
                self._end(self._reply())
        self._lost(self)

    def on_message_begin(self) -> None:
        """The parser has found the beginning of a reply."""
        self._headers = {}
        self._body = []
        self._has_head = self._has_ended = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser has read one header; of a repeated one the last counts."""
        self._headers[name.decode("latin-1").lower()] = value.decode("utf-8", "replace")

    def on_headers_complete(self) -> None:
        """The parser has read all headers."""
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        """The parser has read a part of the body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The parser has read a whole reply; an interim one (1xx) is dropped."""
        answer = self._answer
        if answer is None or self._parser.get_status_code() < 200:
            return
        self._answer = None
        self._has_ended = self._parser.should_keep_alive()
        if not answer.done():  # done: its caller was cancelled
            answer.set_result(self._reply())

    def _reply(self) -> Reply | TransportError:
        """The reply that was read, its body unpacked."""
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        encoding = self._headers.get("content-encoding", "identity").strip().lower()
        if encoding not in _UNPACKED and body:
            return self._failure(
                f"the reply is packed as {encoding!r:.40}, which was not asked for"
            )
        if encoding in {"gzip", "x-gzip", "deflate"}:
            unpacking = zlib.decompressobj(_GZIP_OR_ZLIB)
            try:
                if encoding == "deflate" and body[:1] and body[0] & 15 != zlib.DEFLATED:
                    unpacking = zlib.decompressobj(-zlib.MAX_WBITS)  # without zlib's header
                body = unpacking.decompress(body, LONGEST_REPLY_BYTES)
            except zlib.error:
                return self._failure("the reply is not what its Content-Encoding says")
            if unpacking.unconsumed_tail:
                return ReplyTooLongError()
        return Reply(self._parser.get_status_code(), self._headers, body)

    def _set_timer(self) -> None:
        self._rings_s = self._due_s
        self._timer = self._loop.call_at(self._due_s, self._on_timer)

    def _stop_timer(self) -> None:
        self._rings_s = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer, self._rings_s = None, math.inf
        if self._due_s == math.inf:
            return
        if self._due_s > self._loop.time():
            self._set_timer()
            return
        why = f"no complete reply in {self._timeout_s:g} s"
        self._end(self._failure(why, FailureKind.TIMEOUT))
        self.abort()

    def _end(self, outcome: Reply | TransportError) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():  # done: its caller was cancelled
            answer.set_result(outcome)

    def _failure(
        self, why: str, kind: TransportFailure = FailureKind.UNREACHABLE
    ) -> TransportError:
        stale = self._has_served and kind is FailureKind.UNREACHABLE
        return TransportError(kind, why, reused_connection=stale)
