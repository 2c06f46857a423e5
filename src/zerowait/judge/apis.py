"""Translates chat requests to the API that an endpoint speaks, and its replies back."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from zerowait.config.endpoint import Api
from zerowait.judge.responses import chat_form, responses_body
from zerowait.judge.reward_model import reward_body, reward_reply

_CANONICAL: Final = msgspec.json.Encoder(order="sorted")


def body_for_api(chat: bytes, api: Api) -> bytes:
    """The body of the chat request `chat`, translated to `api`."""
    match api:
        case "chat":
            return chat
        case "completions":
            return completions_body(chat)
        case "responses":
            return responses_body(chat)
    return reward_body(chat, api)


def as_chat(body: bytes) -> dict[str, Any] | None:
    """The reply `body` of another API as a chat completion; None where it is no such reply."""
    return chat_form(body) or reward_reply(body)


def completions_body(chat: bytes) -> bytes:
    r"""The chat request `chat`, translated to a body for legacy ``/completions``.

    The prompt is the messages' texts, one below the other, and ``Answer:``, which a base model
    continues. ``top_logprobs`` is the number that this API calls ``logprobs``.

    >>> completions_body(b'{"model":"m","logprobs":true,"top_logprobs":5,"messages":['
    ...                  b'{"role":"system","content":"Judge."},{"role":"user","content":"4"}]}')
    b'{"logprobs":5,"model":"m","prompt":"Judge.\\n\\n4\\n\\nAnswer:"}'
    """
    body: dict[str, Any] = msgspec.json.decode(chat)
    texts = [message["content"] for message in body.pop("messages")]
    body["prompt"] = "\n\n".join([*texts, "Answer:"])
    top = body.pop("top_logprobs", None)
    if body.pop("logprobs", False):
        body["logprobs"] = top or 1
    return _CANONICAL.encode(body)
