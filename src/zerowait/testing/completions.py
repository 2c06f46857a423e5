"""Reply bodies of the fake judge: completions, responses, and a reward model's numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from zerowait.testing.draws import pick
from zerowait.testing.judge_request import JudgeRequest, estimated_tokens
from zerowait.testing.logprobs import as_parallel_lists, written_logprobs
from zerowait.testing.replies import CREATED
from zerowait.testing.script import Script

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?")
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The message of the judge and its finish reason.

    Args:
        content: the text of the message.
        finish_reason: ``stop``, ``length``, ``content_filter``, or a word of no known meaning.
        refusal: the text of a refusal.
        thinking: the text of its reasoning; None leaves it out.
        tokens: reported completion tokens; None estimates them from the text.
        logprobs: ``choices[0].logprobs`` where the request asks for them; None: made for the text.
    """

    content: str | None
    finish_reason: str = "stop"
    refusal: str | None = None
    thinking: str | None = None
    tokens: int | None = None
    logprobs: Any = None


def completion(
    script: Script, request: JudgeRequest, message: AssistantMessage, *, name: str
) -> dict[str, Any]:
    """The JSON object of a reply with this message.

    Args:
        script: of the judge.
        request: the request; decides the API.
        message: the message.
        name: unique part of the reply's id.
    """
    tokens = estimated_tokens(len(message.content or message.thinking or message.refusal or ""))
    if message.finish_reason == "length" and request.tokens is not None:
        tokens = request.tokens
    if message.tokens is not None:
        tokens = message.tokens
    form = _FORMS.get(request.api, _reward)
    return form(script, request, message, tokens) | {"id": f"{request.api}-{name}"}


def _chat(
    script: Script, request: JudgeRequest, message: AssistantMessage, tokens: int
) -> dict[str, Any]:
    body = {"role": "assistant", "content": message.content, "refusal": message.refusal}
    if message.thinking is not None:
        body["reasoning_content"] = message.thinking
    return {
        "id": "",
        "object": "chat.completion",
        "created": CREATED,
        "model": script.model or request.model,
        "system_fingerprint": script.fingerprint,
        "choices": [
            {
                "index": 0,
                "message": body,
                "logprobs": _logprobs(script, request, message),
                "finish_reason": message.finish_reason,
            }
        ],
        "usage": {
            "prompt_tokens": request.prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": request.prompt_tokens + tokens,
        },
    }


def _completion(
    script: Script, request: JudgeRequest, message: AssistantMessage, tokens: int
) -> dict[str, Any]:
    """The reply of legacy completions: a text instead of a message."""
    reply = _chat(script, request, message, tokens)
    choice = reply["choices"][0]
    logprobs = choice["logprobs"]
    if logprobs is not None and "content" in logprobs:
        logprobs = as_parallel_lists(logprobs)
    text = {"index": 0, "text": message.content or "", "logprobs": logprobs}
    text["finish_reason"] = message.finish_reason
    return reply | {"object": "text_completion", "choices": [text]}


def _logprobs(script: Script, request: JudgeRequest, message: AssistantMessage) -> Any:
    """The log-probabilities that the request asks for; None without any."""
    asked = request.body.get("logprobs")
    included = "message.output_text.logprobs" in (request.body.get("include") or ())
    if not script.logprobs or not (asked or included):
        return None
    if message.logprobs is not None:
        return message.logprobs
    top = asked if request.api == "completions" else request.body.get("top_logprobs")
    return written_logprobs(message.content or "", script.verdict, top or 0)


def _response(
    script: Script, request: JudgeRequest, message: AssistantMessage, tokens: int
) -> dict[str, Any]:
    finish = message.finish_reason
    reason = None if finish == "stop" else _INCOMPLETE.get(finish, finish)
    return {
        "id": "",
        "object": "response",
        "created_at": CREATED,
        "status": "completed" if reason is None else "incomplete",
        "error": None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "model": script.model or request.model,
        "output": list(_items(message, _logprobs(script, request, message))),
        "usage": {
            "input_tokens": request.prompt_tokens,
            "output_tokens": tokens,
            "total_tokens": request.prompt_tokens + tokens,
        },
    }


def _items(message: AssistantMessage, logprobs: Any) -> Iterable[dict[str, Any]]:
    """The output items of a response: its reasoning, and the message if there is one."""
    if message.thinking is not None:
        thought = {"type": "summary_text", "text": message.thinking}
        yield {"type": "reasoning", "id": "rs", "summary": [thought]}
    parts = []
    if message.content is not None:
        part = {"type": "output_text", "text": message.content, "annotations": []}
        parts.append(part | ({} if logprobs is None else {"logprobs": logprobs["content"]}))
    if message.refusal is not None:
        parts.append({"type": "refusal", "refusal": message.refusal})
    if parts or message.thinking is None:
        status = "completed" if message.finish_reason == "stop" else "incomplete"
        item = {"type": "message", "id": "msg", "status": status, "role": "assistant"}
        yield item | {"content": parts}


def with_error(right: dict[str, Any], code: int | str, message: str) -> dict[str, Any]:
    """The completion `right` with an error instead of the message, as API relays send it."""
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
            right | {name: [_with_content(field, "7")]},
            right | {name: [_with_content(field, {"content": 7})]},
            right | {name: [_with_content(field, {"content": {"a": [7]}})]},
            {key: value for key, value in right.items() if key != name},
            [right],
            None,
        ),
    )


def _with_content(field: dict[str, Any], what: Any) -> dict[str, Any]:
    """A choice or output item whose message is `what`, or is updated by it."""
    if "message" not in field:
        return field | (what if isinstance(what, dict) else {"content": what})
    return field | {"message": field["message"] | what if isinstance(what, dict) else what}


def _reward(
    script: Script, request: JudgeRequest, message: AssistantMessage, tokens: int
) -> dict[str, Any]:
    """The last number in the message in the form of vLLM's pooling models; null without one."""
    del tokens
    numbers = _NUMBER.findall(message.content or "")
    value = float(numbers[-1]) if numbers else None
    item: dict[str, Any] = {"index": 0}
    match request.api:
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
        "model": script.model or request.model,
        "data": [item],
        "usage": {"prompt_tokens": request.prompt_tokens, "total_tokens": request.prompt_tokens},
    }


_FORMS = {"chat": _chat, "completions": _completion, "responses": _response}
