"""The port through which requests leave: one method, one error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from zerowait.attribution import Attribution
from zerowait.completion import Completion
from zerowait.config.urls import shown_url
from zerowait.errors import ZerowaitError
from zerowait.types import FailureKind

TransportFailure: TypeAlias = Literal[FailureKind.TIMEOUT, FailureKind.UNREACHABLE]
"""The two ways in which no complete reply comes."""

LONGEST_REPLY_BYTES: Final = 16 * 2**20
"""A transport reads no more, so that an endless reply does not fill the memory."""


class Request(msgspec.Struct, frozen=True):
    """One POST. Its headers hold the key, so they are not shown, nor is the URL's query.

    Args:
        url: the full URL.
        headers: sent with it.
        body: of the request.
        proxy: the URL of the proxy that it goes through; None: it goes directly.

    >>> Request("http://judge/v1", {"Authorization": "Bearer k"}, b"{}")
    Request(url='http://judge/v1', body=<2 bytes>)
    """

    url: str
    headers: Mapping[str, str]
    body: bytes
    proxy: str | None = None

    def __repr__(self) -> str:
        return f"Request(url={shown_url(self.url)!r}, body=<{len(self.body)} bytes>)"

    def __rich_repr__(self) -> Any:
        yield "url", shown_url(self.url)


class Reply(msgspec.Struct, frozen=True):
    """An HTTP reply, completely read.

    Args:
        status: of HTTP.
        headers: with names in lower case.
        body: unpacked.
        completion: the body decoded, where a step of the client has decoded it already.
        attribution: what a reply that is no answer means, once it was looked up.

    >>> Reply(200, {}, b"{}")
    Reply(status=200, body=<2 bytes>)
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    completion: Completion | None = None
    attribution: Attribution | None = None

    def __repr__(self) -> str:
        return f"Reply(status={self.status}, body=<{len(self.body)} bytes>)"

    def __rich_repr__(self) -> Any:
        yield "status", self.status


class TransportError(ZerowaitError):
    """No complete reply came.

    Args:
        kind: ``timeout`` when the attempt's time was over, else ``unreachable``.
        detail: what happened, for people; holds no header and no part of a body.
        reused_connection: the connection had served before, so the server may have closed it
            at the moment of the send, which says nothing about the server's health.
        sent: False when it is certain that the request did not reach the server, and so costs
            nothing.
    """

    def __init__(
        self,
        kind: TransportFailure,
        detail: str,
        *,
        reused_connection: bool = False,
        sent: bool = True,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.reused_connection = reused_connection
        self.sent = sent


class ReplyTooLongError(TransportError):
    """The reply is longer than `LONGEST_REPLY_BYTES`; another attempt may bring it again."""

    def __init__(self) -> None:
        super().__init__(
            FailureKind.UNREACHABLE,
            f"the reply is longer than {LONGEST_REPLY_BYTES // 2**20} MiB",
        )


class Transport(Protocol):
    """Sends requests. Raises `TransportError`, or `ClosedError` after `aclose`.

    An error that is none of zerowait's is taken for a `TransportError`: no complete reply came.
    """

    async def send(self, request: Request, *, timeout_s: float) -> Reply:
        """The whole reply to `request`, within `timeout_s` seconds of this call.

        Redirects are not followed and nothing is sent twice. Cancelling the call closes its
        connection at once, so that the server stops work that is not wanted any more.

        Raises:
            TransportError: no complete reply came.
        """
        ...

    async def aclose(self) -> None:
        """Close every connection. Idempotent."""
        ...
