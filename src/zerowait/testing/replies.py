"""HTTP replies of the fake judge other than completions: errors and the list of models."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from zerowait.testing.draws import Draws, pick
from zerowait.testing.faults import Exhausted
from zerowait.testing.script import Script

CREATED = 1_767_225_600  # a fixed date: two judges with one script send the same bytes
_DEFAULT_MESSAGES = {
    429: "Rate limit reached. Please try again later.",
    500: "The server had an error while processing your request.",
    502: "Bad gateway.",
    503: "The server is overloaded or not ready yet.",
}


class FakeReply(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP reply and how it is sent.

    Args:
        body: the JSON, possibly truncated.
        status: the HTTP status.
        headers: in addition to those of every reply.
        latency_s: seconds from the request to the reply.
        fault: name of its fault; empty without one.
        sent: the part that is sent.
        then: what happens to the connection afterwards.
        verdict: whether it has the right verdict.
    """

    body: bytes
    status: int = 200
    headers: dict[str, str] = {}
    latency_s: float = 0.0
    fault: str = ""
    sent: Literal["all", "nothing", "headers", "half"] = "all"
    then: Literal["keep", "close", "reset", "hang"] = "keep"
    verdict: bool = False


def error_reply(
    status: int, why: str = "", *, headers: dict[str, str] | None = None, fault: str = ""
) -> FakeReply:
    """An error reply in the form of OpenAI.

    Args:
        status: the HTTP status.
        why: the message; empty takes OpenAI's.
        headers: such as Retry-After.
        fault: name of the fault that it is.
    """
    if status == 429:
        kind = "rate_limit_error"
    else:
        kind = "invalid_request_error" if status < 500 else "server_error"
    error = {
        "message": why or _DEFAULT_MESSAGES.get(status, "The request failed."),
        "type": kind,
        "param": None,
        "code": "rate_limit_exceeded" if status == 429 else None,
    }
    body = msgspec.json.encode({"error": error})
    return FakeReply(body=body, status=status, headers=headers or {}, fault=fault)


_MODERATION_REPLIES: Final = {
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
_EXHAUSTED_REPLIES: Final = {
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


def moderation_reply(form: str, content: Draws) -> FakeReply:
    """A rejection by a content filter, in the form of one provider, or of any for ``mixed``."""
    if form == "mixed":
        form = pick(content.variant, tuple(_MODERATION_REPLIES))
    status, body = _MODERATION_REPLIES[form]
    return FakeReply(body=msgspec.json.encode(body), status=status)


def exhausted_reply(fault: Exhausted) -> FakeReply:
    """A rejection because the account has no credit left."""
    status, body = _EXHAUSTED_REPLIES[fault.form]
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
