"""The APIs that endpoints speak, from the outside: requests for each, replies of any."""

from __future__ import annotations

from typing import Any

from zerowait.config.endpoint import Api
from zerowait.judge.responses import chat_form, responses_body
from zerowait.judge.reward_model import reward_body, reward_reply


def body_for_api(chat: bytes, api: Api) -> bytes:
    """The body for `api` that asks what the chat request `chat` asks."""
    match api:
        case "chat":
            return chat
        case "responses":
            return responses_body(chat)
    return reward_body(chat, api)


def as_chat(body: bytes) -> dict[str, Any] | None:
    """The chat completion that says what the reply `body` of another API says, if it is one."""
    return chat_form(body) or reward_reply(body)
