"""The requests that the fake judge understands."""

from __future__ import annotations

from typing import Any

import msgspec

_CHARACTERS_PER_TOKEN = 4


class BadRequestError(ValueError):
    """The request is not one that a chat completions endpoint answers; the message says why."""


class Ask(msgspec.Struct, frozen=True):
    """A request that was understood.

    Args:
        body: the decoded JSON.
        messages: at least one, each with a role.
        model: the model that was asked for.
        tokens: ``max_completion_tokens`` or ``max_tokens``; None when neither is given.
        prompt_tokens: estimated from the number of characters.
    """

    body: dict[str, Any]
    messages: list[dict[str, Any]]
    model: str
    tokens: int | None
    prompt_tokens: int


def understood(raw: bytes) -> Ask:
    """The request in the bytes of a body.

    Raises:
        BadRequestError: it is not JSON, lacks a field, or wants what is not offered.
    """
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequestError(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise BadRequestError("the body must be a JSON object")
    messages, model = body.get("messages"), body.get("model")
    if not isinstance(model, str) or not model:
        raise BadRequestError("you must provide a model parameter")
    if not (isinstance(messages, list) and messages):
        raise BadRequestError("'messages' must be a non-empty list")
    if not all(isinstance(message, dict) and "role" in message for message in messages):
        raise BadRequestError("every message must be an object with a role")
    if body.get("stream") or body.get("n") not in (None, 1):
        raise BadRequestError("the fake judge neither streams nor gives more than one choice")
    tokens = body.get("max_completion_tokens", body.get("max_tokens"))
    if tokens is not None and (not isinstance(tokens, int) or tokens < 1):
        raise BadRequestError("max_tokens must be a whole number greater than 0")
    characters = sum(_length(message.get("content")) for message in messages)
    return Ask(body, messages, model, tokens, estimated_tokens(characters))


def estimated_tokens(characters: int) -> int:
    """About as many tokens as so many characters are, rounded up.

    >>> estimated_tokens(9)
    3
    """
    return -(-characters // _CHARACTERS_PER_TOKEN)


def _length(content: Any) -> int:
    return len(content) if isinstance(content, str) else len(msgspec.json.encode(content))
