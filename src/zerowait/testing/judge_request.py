"""The requests that the fake judge understands, in OpenAI's two APIs and those of reward models."""

from __future__ import annotations

from typing import Any

import msgspec

from zerowait.config.endpoint import Api

_CHARACTERS_PER_TOKEN = 4
_NAMES: dict[Api, str] = {"responses": "input", "score": "text_1 and text_2"}
_LIMITS: dict[Api, tuple[str, ...]] = {
    "chat": ("max_completion_tokens", "max_tokens"),
    "responses": ("max_output_tokens",),
}


class BadRequestError(ValueError):
    """The request is not one that such an endpoint answers; the message says why."""


class JudgeRequest(msgspec.Struct, frozen=True):
    """A request that was understood.

    Args:
        body: the decoded JSON.
        messages: at least one, each with a role; the same for the same question in any API.
        model: the model that was asked for.
        tokens: the longest answer; None when the request does not say.
        prompt_tokens: estimated from the number of characters.
        api: in which it was asked.
    """

    body: dict[str, Any]
    messages: list[dict[str, Any]]
    model: str
    tokens: int | None
    prompt_tokens: int
    api: Api = "chat"


def parsed_request(raw: bytes, api: Api = "chat") -> JudgeRequest:
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
    model = body.get("model")
    name = _NAMES.get(api, "messages")
    messages = body.get(name) if name == "messages" else _conversation(body, api)
    if not isinstance(model, str) or not model:
        raise BadRequestError("you must provide a model parameter")
    if not (isinstance(messages, list) and messages):
        raise BadRequestError(f"'{name}' must be a non-empty list")
    if not all(isinstance(message, dict) and "role" in message for message in messages):
        raise BadRequestError("every message must be an object with a role")
    if body.get("stream") or body.get("n") not in (None, 1):
        raise BadRequestError("the fake judge neither streams nor gives more than one choice")
    tokens = _longest(body, api)
    characters = sum(_length(message.get("content")) for message in messages)
    return JudgeRequest(body, messages, model, tokens, estimated_tokens(characters), api)


def _conversation(body: dict[str, Any], api: Api) -> Any:
    """The messages of a request to ``/responses`` or ``/score``, as chat would have them."""
    if api == "score":
        texts = body.get("text_1"), body.get("text_2")
        roles = ("user", "assistant")
        return [
            {"role": role, "content": text}
            for role, text in zip(roles, texts, strict=True)
            if isinstance(text, str)
        ]
    said, told = body.get("input"), body.get("instructions")
    if isinstance(said, str):
        said = [{"role": "user", "content": said}]
    if not isinstance(said, list) or told is None:
        return said
    return [{"role": "system", "content": told}, *said]


def _longest(body: dict[str, Any], api: Api) -> int | None:
    """The longest answer that is wanted, in tokens."""
    names = _LIMITS.get(api, _LIMITS["chat"])
    name = next((name for name in names if name in body), names[-1])
    tokens = body.get(name)
    if tokens is not None and (not isinstance(tokens, int) or tokens < 1):
        raise BadRequestError(f"{name} must be a whole number greater than 0")
    return tokens


def estimated_tokens(characters: int) -> int:
    """About as many tokens as so many characters are, rounded up.

    >>> estimated_tokens(9)
    3
    """
    return -(-characters // _CHARACTERS_PER_TOKEN)


def _length(content: Any) -> int:
    return len(content) if isinstance(content, str) else len(msgspec.json.encode(content))
