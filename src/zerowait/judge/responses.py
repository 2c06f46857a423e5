"""OpenAI's responses API: chat requests translated to it, and its replies translated back.

Inside zerowait all requests and replies have the form of chat completions, so that a judgement
keeps its cache key when another endpoint, of either API, answers it. Source: OpenAI's API
reference, ``POST /v1/responses``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

_CANONICAL: Final = msgspec.json.Encoder(order="sorted")
_ANSWERED: Final = (None, "completed", "incomplete")
_WITH_LOGPROBS: Final = "message.output_text.logprobs"
_LIMITS: Final = ("max_tokens", "max_completion_tokens")


def responses_body(chat: bytes) -> bytes:
    """The chat request `chat`, translated to a body for ``/responses``.

    The leading system messages are its ``instructions``. ``response_format``, ``reasoning_effort``,
    ``verbosity`` and ``logprobs`` go where that API has them; other fields are sent as they are.
    The provider is asked not to store the exchange, unless the request says otherwise.

    >>> responses_body(b'{"model":"m","max_tokens":8,"messages":[{"role":"user","content":"?"}]}')
    b'{"input":[{"content":"?","role":"user"}],"max_output_tokens":8,"model":"m","store":false}'
    """
    asked: dict[str, Any] = msgspec.json.decode(chat)
    messages = asked.pop("messages")
    told = 0
    while told < len(messages) and messages[told].get("role") in ("system", "developer"):
        told += 1
    body: dict[str, Any] = {"store": False, "input": [_with_parts(m) for m in messages[told:]]}
    if told:
        body["instructions"] = "\n\n".join(message["content"] for message in messages[:told])
    for name in _LIMITS:
        if name in asked:
            body["max_output_tokens"] = asked.pop(name)
    text = dict(asked.pop("text", {}))
    if "response_format" in asked:
        text["format"] = _flat(asked.pop("response_format"))
    if "verbosity" in asked:
        text["verbosity"] = asked.pop("verbosity")
    if text:
        body["text"] = text
    if asked.pop("logprobs", None):
        body["include"] = [*asked.pop("include", ()), _WITH_LOGPROBS]
    if "reasoning_effort" in asked:
        body["reasoning"] = {"effort": asked.pop("reasoning_effort")}
    return _CANONICAL.encode(body | asked)


def _with_parts(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message with its content parts, if it has some, under this API's names."""
    parts = message["content"]
    if isinstance(parts, str):
        return message
    named = [
        {"type": "input_image", "image_url": part["image_url"]["url"]}
        if part["type"] == "image_url"
        else {"type": "input_text", "text": part["text"]}
        for part in parts
    ]
    return {**message, "content": named}


def _flat(response_format: Any) -> Any:
    """A ``response_format`` with its schema one level higher, as this API has it."""
    if not isinstance(response_format, Mapping):
        return response_format
    schema = response_format.get("json_schema")
    if not isinstance(schema, Mapping):
        return response_format
    return {"type": "json_schema", **schema}


class _Response(msgspec.Struct, frozen=True):
    output: list[Any]
    status: Any = None
    incomplete_details: Any = None
    output_text: Any = None
    usage: Any = None
    model: Any = None
    error: Any = None


_decode = msgspec.json.Decoder(_Response).decode


def chat_form(body: bytes) -> dict[str, Any] | None:
    """The reply `body` of ``/responses``, translated to a chat completion.

    None for bytes that are no such reply, and for one without an answer: it failed, was cancelled
    or is still under way.
    """
    try:
        response = _decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    if response.status not in _ANSWERED:
        return None
    if not response.output and response.status != "incomplete":
        return None
    usage = response.usage if isinstance(response.usage, dict) else {}
    message, finish = _message(response), _finish(response)
    return {
        "choices": [
            {"message": message, "finish_reason": finish, "logprobs": _logprobs(message["content"])}
        ],
        "usage": {
            "prompt_tokens": usage.get("input_tokens"),
            "completion_tokens": usage.get("output_tokens"),
        },
        "model": response.model,
        "error": response.error,
    }


def _finish(response: _Response) -> Any:
    details = response.incomplete_details
    if response.status != "incomplete":
        parts = [item.get("status") for item in response.output if isinstance(item, dict)]
        return "length" if "incomplete" in parts else "stop"
    return details.get("reason", "length") if isinstance(details, dict) else "length"


def _logprobs(content: Any) -> dict[str, Any] | None:
    """The tokens of all parts of a message's content; None where the reply has none."""
    parts = content if isinstance(content, list) else []
    lists = [part.get("logprobs") for part in parts]
    tokens = [token for tokens in lists if isinstance(tokens, list) for token in tokens]
    return {"content": tokens} if tokens else None


def _message(response: _Response) -> dict[str, Any]:
    """The chat message with all text, refusals and tool calls; reasoning items are left out."""
    items = [item for item in response.output if isinstance(item, dict)]
    contents = [item.get("content") for item in items if item.get("type") == "message"]
    parts = [
        part
        for content in contents
        if isinstance(content, list)
        for part in content
        if isinstance(part, dict)
    ]
    refusals = [part.get("refusal") for part in parts if part.get("type") == "refusal"]
    return {
        "content": parts or response.output_text,
        "refusal": next(iter(refusals), None),
        "tool_calls": [
            {"function": {"arguments": item.get("arguments")}}
            for item in items
            if item.get("type") == "function_call"
        ],
    }
