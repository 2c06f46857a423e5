"""A chat completion out of a stream of server-sent events, which some gateways send unasked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

import msgspec

_EVENT: Final = re.compile(rb"^data:[ ]?(?P<data>[^\r\n]*)", re.MULTILINE)
_COMMENT: Final = re.compile(rb"^:[^\r\n]*", re.MULTILINE)
STREAM_BEGINS: Final = frozenset((b":", b"d", b"e", b"i", b"r", b"\n", b"\r"))
"""The first bytes that the body of a stream may have."""

_BEGINS: Final = (b"data:", b"event:", b"id:", b"retry:", b":")
_TEXTS: Final = ("content", "reasoning_content", "reasoning", "refusal")
_DONE: Final = b"[DONE]"


def whole_reply(body: bytes) -> bytes | None:
    r"""The chat completion that the events of a stream add up to.

    None where `body` is no stream, an event is no JSON or tells of an error, no event says how the
    reply ended (it may have been cut), or it is open what the text is: events of several replies,
    as of a gateway that began anew, or events that each repeat the text so far.

    >>> body = b'data: {"choices":[{"delta":{"content":"Score: "}}]}\n\n'
    >>> body += b'data: {"choices":[{"delta":{"content":"7"},"finish_reason":"stop"}]}\n\n'
    >>> whole_reply(body)
    b'{"choices":[{"message":{"role":"assistant","content":"Score: 7"},"finish_reason":"stop"}]}'
    """
    body = body.lstrip()
    if not body.startswith(_BEGINS):
        return None
    found = [each["data"].strip() for each in _EVENT.finditer(body)]
    if not found:  # comments that keep the connection alive, and then the reply itself
        found = [_COMMENT.sub(b"", body).strip()]
    try:
        events = [msgspec.json.decode(data) for data in found if data and data != _DONE]
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    if not all(isinstance(event, dict) for event in events) or any(e.get("error") for e in events):
        return None
    whole = _summed(events)
    return None if whole is None else msgspec.json.encode(whole)


def _summed(events: list[dict[str, Any]]) -> dict[str, Any] | None:
    choices = [choice for event in events if (choice := _choice(event)) is not None]
    if len(choices) == 1 and "message" in choices[0]:
        return next(event for event in events if _choice(event) is not None)
    endings = {str(choice["finish_reason"]) for choice in choices if choice.get("finish_reason")}
    replies = {str(event["id"]) for event in events if event.get("id")}
    if len(endings) != 1 or len(replies) > 1:
        return None
    message: dict[str, Any] = {"role": "assistant"}
    for name in _TEXTS:
        parts = _parts(choices, name)
        if _repeat(parts):
            return None
        if parts:
            message[name] = "".join(parts)
    whole = {"message": message, "finish_reason": endings.pop()}
    if (logprobs := _logprobs(choices)) is not None:
        whole["logprobs"] = logprobs
    beside = {
        name: event[name]
        for event in events
        for name in ("model", "system_fingerprint", "usage")
        if event.get(name) is not None
    }
    return {**beside, "choices": [whole]}


def _parts(choices: list[dict[str, Any]], name: str) -> list[str]:
    """What the events say in one field of their ``delta``, in order."""
    deltas = (choice.get("delta") for choice in choices)
    said = (delta.get(name) for delta in deltas if isinstance(delta, dict))
    return [text for text in said if isinstance(text, str) and text]


def _repeat(parts: list[str]) -> bool:
    """Whether each part begins with the one before, as where events hold all the text so far."""
    return len(parts) > 1 and all(now.startswith(before) for before, now in pairwise(parts))


def _choice(event: dict[str, Any]) -> dict[str, Any] | None:
    """The event's choice with index 0; None without one."""
    choices = event.get("choices")
    if not isinstance(choices, list):
        return None
    ours = (each for each in choices if isinstance(each, dict) and each.get("index", 0) in (0, "0"))
    return next(ours, None)


def _logprobs(choices: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The log-probabilities of all events, in OpenAI's form; None without any."""
    parts = [choice.get("logprobs") for choice in choices]
    lists = [part.get("content") for part in parts if isinstance(part, Mapping)]
    tokens = [token for each in lists if isinstance(each, list) for token in each]
    return {"content": tokens} if tokens else None
