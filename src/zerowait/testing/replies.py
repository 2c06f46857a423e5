"""What the fake judge puts on the wire, besides completions: errors and pages."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from zerowait.testing.draws import Draws, pick
from zerowait.testing.faults import Exhausted
from zerowait.testing.script import Script

CREATED = 1_767_225_600  # a fixed date: two judges with one script send the same bytes
_MEANING = {
    429: "Rate limit reached. Please try again later.",
    500: "The server had an error while processing your request.",
    502: "Bad gateway.",
    503: "The server is overloaded or not ready yet.",
}


class FakeReply(msgspec.Struct, frozen=True, kw_only=True):
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


def failed_reply(
    status: int, why: str = "", *, headers: dict[str, str] | None = None, fault: str = ""
) -> FakeReply:
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
    return FakeReply(body=body, status=status, headers=headers or {}, fault=fault)


_MODERATED: Final = {
    "azure": (
        400,
        {
            "error": {
                "message": "The response was filtered because the prompt triggered the content "
                "management policy. Please modify your prompt and retry.",
                "type": None,
                "param": "prompt",
                "code": "content_filter",
                "status": 400,
                "innererror": {"code": "ResponsibleAIPolicyViolation"},
            }
        },
    ),
    "deepseek": (
        400,
        {
            "error": {
                "message": "Content Exists Risk",
                "type": "invalid_request_error",
                "param": None,
                "code": "invalid_request_error",
            }
        },
    ),
    "dashscope": (
        400,
        {
            "error": {
                "code": "data_inspection_failed",
                "param": None,
                "message": "Input data may contain inappropriate content.",
                "type": "data_inspection_failed",
            },
            "request_id": "fake",
        },
    ),
    "openrouter": (
        403,
        {
            "error": {
                "message": "fake requires moderation. Your input was flagged.",
                "code": 403,
                "metadata": {"reasons": ["violence"], "provider_name": "fake"},
            }
        },
    ),
}
_UNPAID: Final = {
    "openai": (
        429,
        {
            "error": {
                "message": "You exceeded your current quota, please check your plan and billing "
                "details.",
                "type": "insufficient_quota",
                "param": None,
                "code": "insufficient_quota",
            }
        },
    ),
    "deepseek": (
        402,
        {
            "error": {
                "message": "Insufficient Balance",
                "type": "unknown_error",
                "param": None,
                "code": "invalid_request_error",
            }
        },
    ),
    "anthropic": (
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "Your credit balance is too low to access the API.",
            },
        },
    ),
}


def moderated(form: str, content: Draws) -> FakeReply:
    """A request turned away for its text, in one provider's words or in those of any."""
    if form == "mixed":
        form = pick(content.variant, tuple(_MODERATED))
    status, body = _MODERATED[form]
    return FakeReply(body=msgspec.json.encode(body), status=status)


def unpaid(fault: Exhausted) -> FakeReply:
    """A request turned away because nobody paid."""
    status, body = _UNPAID[fault.form]
    return FakeReply(body=msgspec.json.encode(body), status=status)


def models(script: Script) -> bytes:
    """The body of ``/v1/models``."""
    model = {
        "id": script.model or "fake",
        "object": "model",
        "created": CREATED,
        "owned_by": "zerowait",
    }
    return msgspec.json.encode({"object": "list", "data": [model]})
