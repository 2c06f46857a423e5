"""Parsing of judge requests: OpenAI's two APIs and vLLM's APIs for reward models."""

from __future__ import annotations

from typing import Any

import msgspec

from zerowait.config.endpoint import Api

_CHARACTERS_PER_TOKEN = 4
_MESSAGE_FIELDS: dict[Api, str] = {
    "completions": "prompt",
    "responses": "input",
    "score": "text_1 and text_2",
}
_TOKEN_FIELDS: dict[Api, tuple[str, ...]] = {
    "chat": ("max_completion_tokens", "max_tokens"),
    "responses": ("max_output_tokens",),
}


class BadRequestError(ValueError):
    """The endpoint would answer this request with 400; the message says why."""


class JudgeRequest(msgspec.Struct, frozen=True):
    """A valid request.

    Args:
        body: the decoded JSON.
        messages: at least one, each with a role; equal for the same question in any API but
            legacy completions, whose prompt is one message.
        model: the requested model.
        tokens: maximal tokens of the answer; None where the request has no limit.
        prompt_tokens: estimated from the number of characters.
        api: the API of the endpoint.
    """

    body: dict[str, Any]
    messages: list[dict[str, Any]]
    model: str
    tokens: int | None
    prompt_tokens: int
    api: Api = "chat"


def parse_request(raw: bytes, api: Api = "chat") -> JudgeRequest:
    """The request in a body.

    Args:
        raw: the bytes of the body.
        api: the API of the endpoint.

    Raises:
        BadRequestError: it is not JSON, lacks a field, or needs a feature that is not offered.
    """
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequestError(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise BadRequestError("the body must be a JSON object")
    model = body.get("model")
    name = _MESSAGE_FIELDS.get(api, "messages")
    messages = body.get(name) if name == "messages" else _messages(body, api)
    if not isinstance(model, str) or not model:
        raise BadRequestError("you must provide a model parameter")
    if not (isinstance(messages, list) and messages):
        raise BadRequestError(f"'{name}' must be a non-empty list")
    if not all(isinstance(message, dict) and "role" in message for message in messages):
        raise BadRequestError("every message must be an object with a role")
    if body.get("stream") or body.get("n") not in (None, 1):
        raise BadRequestError("the fake judge neither streams nor gives more than one choice")
    tokens = _max_tokens(body, api)
    characters = sum(_length(message.get("content")) for message in messages)
    return JudgeRequest(body, messages, model, tokens, estimated_tokens(characters), api)


def _messages(body: dict[str, Any], api: Api) -> Any:
    """The messages of a request to another API in the form of the chat API."""
    if api == "completions":
        prompt = body.get("prompt")
        return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else None
    if api == "score":
        texts = body.get("text_1"), body.get("text_2")
        roles = ("user", "assistant")
        return [
            {"role": role, "content": text}
            for role, text in zip(roles, texts, strict=True)
            if isinstance(text, str)
        ]
    messages, instructions = body.get("input"), body.get("instructions")
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if not isinstance(messages, list) or instructions is None:
        return messages
    return [{"role": "system", "content": instructions}, *messages]


def _max_tokens(body: dict[str, Any], api: Api) -> int | None:
    """The maximal tokens of the answer; None without a limit."""
    names = _TOKEN_FIELDS.get(api, _TOKEN_FIELDS["chat"])
    name = next((name for name in names if name in body), names[-1])
    tokens = body.get(name)
    if tokens is not None and (not isinstance(tokens, int) or tokens < 1):
        raise BadRequestError(f"{name} must be a whole number greater than 0")
    return tokens


def estimated_tokens(characters: int) -> int:
    """The estimated number of tokens in a text of so many characters, rounded up.

    >>> estimated_tokens(9)
    3
    """
    return -(-characters // _CHARACTERS_PER_TOKEN)


def _length(content: Any) -> int:
    return len(content) if isinstance(content, str) else len(msgspec.json.encode(content))
