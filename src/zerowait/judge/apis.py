"""Translates chat requests to the API that an endpoint speaks, and its replies back."""

from __future__ import annotations

from typing import Any

from zerowait.config.endpoint import Api
from zerowait.judge.responses import chat_form, responses_body
from zerowait.judge.reward_model import reward_body, reward_reply


def body_for_api(chat: bytes, api: Api) -> bytes:
    """The body of the chat request `chat`, translated to `api`."""
    match api:
        case "chat":
            return chat
        case "responses":
            return responses_body(chat)
    return reward_body(chat, api)


def as_chat(body: bytes) -> dict[str, Any] | None:
    """The reply `body` of another API as a chat completion; None where it is no such reply."""
    return chat_form(body) or reward_reply(body)
