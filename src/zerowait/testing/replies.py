"""The replies of the fake judge, in the form of OpenAI's chat completions."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from zerowait.testing.asks import Ask, estimated_tokens
from zerowait.testing.draws import pick
from zerowait.testing.script import Script

_CREATED = 1_767_225_600  # a fixed date: two judges with one script send the same bytes
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


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What the judge wrote, and why it stopped there.

    Args:
        content: the text of the message.
        finish_reason: ``stop``, ``length`` or ``content_filter``.
        refusal: the text of a refusal.
        thinking: the text of ``reasoning_content``; None leaves the field out.
    """

    content: str | None
    finish_reason: str = "stop"
    refusal: str | None = None
    thinking: str | None = None


def completion(script: Script, ask: Ask, said: Said, *, name: str) -> dict[str, Any]:
    """The JSON object of a reply that says `said`; `name` makes its id."""
    message = {"role": "assistant", "content": said.content, "refusal": said.refusal}
    if said.thinking is not None:
        message["reasoning_content"] = said.thinking
    tokens = estimated_tokens(len(said.content or said.thinking or said.refusal or ""))
    if said.finish_reason == "length" and ask.tokens is not None:
        tokens = ask.tokens
    return {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": _CREATED,
        "model": script.model or ask.model,
        "system_fingerprint": script.fingerprint,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": said.finish_reason,
            }
        ],
        "usage": {
            "prompt_tokens": ask.prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": ask.prompt_tokens + tokens,
        },
    }


def wrong_types(right: dict[str, Any], variant: float) -> Any:
    """The completion `right` with one field of another type, chosen by `variant` in [0, 1)."""
    choice = right["choices"][0]
    message = choice["message"]
    return pick(
        variant,
        (
            right | {"choices": "7"},
            right | {"choices": []},
            right | {"choices": None},
            right | {"choices": [choice | {"message": "7"}]},
            right | {"choices": [choice | {"message": message | {"content": 7}}]},
            right | {"choices": [choice | {"message": message | {"content": {"a": [7]}}}]},
            {key: value for key, value in right.items() if key != "choices"},
            [right],
            None,
        ),
    )


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
        "created": _CREATED,
        "owned_by": "zerowait",
    }
    return msgspec.json.encode({"object": "list", "data": [model]})
