"""What the fake judge puts on the wire, besides completions: errors and pages."""

from __future__ import annotations

from typing import Literal

import msgspec

from zerowait.testing.script import Script

CREATED = 1_767_225_600  # a fixed date: two judges with one script send the same bytes
_MEANING = {
    429: "Rate limit reached. Please try again later.",
    500: "The server had an error while processing your request.",
    502: "Bad gateway.",
    503: "The server is overloaded or not ready yet.",
}


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What goes over the wire, and how.

    Args:
        body: the JSON, whole or not.
        status: the HTTP status.
        headers: besides those that every reply has.
        latency_s: from the request to the reply, in seconds.
        fault: name of the fault in it; empty when it is right.
        sent: how much of it the client gets.
        then: what becomes of the connection afterwards.
        verdict: whether it carries the verdict that was asked for.
    """

    body: bytes
    status: int = 200
    headers: dict[str, str] = {}
    latency_s: float = 0.0
    fault: str = ""
    sent: Literal["all", "nothing", "headers", "half"] = "all"
    then: Literal["keep", "close", "reset", "hang"] = "keep"
    verdict: bool = False


def failed(
    status: int, why: str = "", *, headers: dict[str, str] | None = None, fault: str = ""
) -> Reply:
    """An error reply in the form of OpenAI's."""
    if status == 429:
        kind = "rate_limit_error"
    else:
        kind = "invalid_request_error" if status < 500 else "server_error"
    error = {
        "message": why or _MEANING.get(status, "The request failed."),
        "type": kind,
        "param": None,
        "code": "rate_limit_exceeded" if status == 429 else None,
    }
    body = msgspec.json.encode({"error": error})
    return Reply(body=body, status=status, headers=headers or {}, fault=fault)


def models(script: Script) -> bytes:
    """The body of ``/v1/models``."""
    model = {
        "id": script.model or "fake",
        "object": "model",
        "created": CREATED,
        "owned_by": "zerowait",
    }
    return msgspec.json.encode({"object": "list", "data": [model]})
