"""The fake judge's completions, in the forms of OpenAI's two APIs, and a reward model's numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from zerowait.testing.judge_request import JudgeRequest, estimated_tokens
from zerowait.testing.draws import pick
from zerowait.testing.replies import CREATED
from zerowait.testing.script import Script

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?")
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What the judge wrote, and why it stopped there.

    Args:
        content: the text of the message.
        finish_reason: ``stop``, ``length``, ``content_filter``, or a word that nobody knows.
        refusal: the text of a refusal.
        thinking: the text of its reasoning; None leaves it out.
        tokens: how many it says it wrote; None: as many as its text has.
    """

    content: str | None
    finish_reason: str = "stop"
    refusal: str | None = None
    thinking: str | None = None
    tokens: int | None = None


def completion(script: Script, ask: JudgeRequest, said: Said, *, name: str) -> dict[str, Any]:
    """The JSON object of a reply that says `said`, in the API of `ask`; `name` makes its id."""
    tokens = estimated_tokens(len(said.content or said.thinking or said.refusal or ""))
    if said.finish_reason == "length" and ask.tokens is not None:
        tokens = ask.tokens
    if said.tokens is not None:
        tokens = said.tokens
    form = _FORMS.get(ask.api, _reward)
    return form(script, ask, said, tokens) | {"id": f"{ask.api}-{name}"}


def _chat(script: Script, ask: JudgeRequest, said: Said, tokens: int) -> dict[str, Any]:
    message = {"role": "assistant", "content": said.content, "refusal": said.refusal}
    if said.thinking is not None:
        message["reasoning_content"] = said.thinking
    return {
        "id": "",
        "object": "chat.completion",
        "created": CREATED,
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


def _response(script: Script, ask: JudgeRequest, said: Said, tokens: int) -> dict[str, Any]:
    finish = said.finish_reason
    reason = None if finish == "stop" else _INCOMPLETE.get(finish, finish)
    return {
        "id": "",
        "object": "response",
        "created_at": CREATED,
        "status": "completed" if reason is None else "incomplete",
        "error": None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "model": script.model or ask.model,
        "output": list(_items(said)),
        "usage": {
            "input_tokens": ask.prompt_tokens,
            "output_tokens": tokens,
            "total_tokens": ask.prompt_tokens + tokens,
        },
    }


def _items(said: Said) -> Iterable[dict[str, Any]]:
    """What a response consists of: its reasoning, and the message where there is one."""
    if said.thinking is not None:
        thought = {"type": "summary_text", "text": said.thinking}
        yield {"type": "reasoning", "id": "rs", "summary": [thought]}
    parts = []
    if said.content is not None:
        parts.append({"type": "output_text", "text": said.content, "annotations": []})
    if said.refusal is not None:
        parts.append({"type": "refusal", "refusal": said.refusal})
    if parts or said.thinking is None:
        status = "completed" if said.finish_reason == "stop" else "incomplete"
        message = {"type": "message", "id": "msg", "status": status, "role": "assistant"}
        yield message | {"content": parts}


def with_error(right: dict[str, Any], code: int | str, message: str) -> dict[str, Any]:
    """The completion `right` with an error instead of the answer, as relays send it."""
    name = next(name for name in ("choices", "output", "data") if name in right)
    error = {"code": code, "message": message}
    gone: dict[str, Any] = {"choices": None, "output": [], "data": None}
    failed = {"status": "failed"} if name == "output" else {}
    return right | {name: gone[name], "error": error} | failed


def wrong_types(right: dict[str, Any], variant: float) -> Any:
    """The completion `right` with one field of another type, chosen by `variant` in [0, 1)."""
    name = next(name for name in ("choices", "output", "data") if name in right)
    field = right[name][-1]
    return pick(
        variant,
        (
            right | {name: "7"},
            right | {name: []},
            right | {name: None},
            right | {name: [_saying(field, "7")]},
            right | {name: [_saying(field, {"content": 7})]},
            right | {name: [_saying(field, {"content": {"a": [7]}})]},
            {key: value for key, value in right.items() if key != name},
            [right],
            None,
        ),
    )


def _saying(field: dict[str, Any], what: Any) -> dict[str, Any]:
    """A choice or an output item whose message is `what`, or has what is in it."""
    if "message" not in field:
        return field | (what if isinstance(what, dict) else {"content": what})
    return field | {"message": field["message"] | what if isinstance(what, dict) else what}


def _reward(script: Script, ask: JudgeRequest, said: Said, tokens: int) -> dict[str, Any]:
    """The last number that the judge says, as vLLM's pooling models have it; null without one."""
    del tokens
    numbers = _NUMBER.findall(said.content or "")
    value = float(numbers[-1]) if numbers else None
    item: dict[str, Any] = {"index": 0}
    match ask.api:
        case "classify":
            item |= {"label": "LABEL_0", "probs": [value], "num_classes": 1}
        case "score":
            item |= {"object": "score", "score": value}
        case _:
            item |= {"object": "pooling", "data": [value]}
    return {
        "id": "",
        "object": "list",
        "created": CREATED,
        "model": script.model or ask.model,
        "data": [item],
        "usage": {"prompt_tokens": ask.prompt_tokens, "total_tokens": ask.prompt_tokens},
    }


_FORMS = {"chat": _chat, "responses": _response}
