"""The planned reply of the fake judge to a request: a pure function of script and request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from zerowait.testing.completions import AssistantMessage, completion, with_error, wrong_types
from zerowait.testing.draws import Draws, attempt_draws, content_draws, pick
from zerowait.testing.faults import (
    AnyFault,
    Empty,
    Ending,
    ErrorInBody,
    Exhausted,
    Garbage,
    Hang,
    Length,
    Moderation,
    OutOfRange,
    Refusal,
    Reset,
    Status,
    TruncatedJson,
    WrongTypes,
    choose_fault,
)
from zerowait.testing.judge_request import JudgeRequest
from zerowait.testing.obedience import obedient_content
from zerowait.testing.replies import FakeReply, error_reply, exhausted_reply, moderation_reply
from zerowait.testing.requested_format import RequestedFormat
from zerowait.testing.script import Script
from zerowait.testing.structured_output import format_refusal
from zerowait.testing.verdicts import (
    EMPTY,
    PROSE,
    REFUSALS,
    VerdictTexts,
    script_for_request,
    verdict_texts,
)

AnswerFunction: TypeAlias = Callable[[dict[str, Any]], str | AssistantMessage]
"""From a request's decoded body to the content of its reply, or to the whole message."""
HoldFunction: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
"""Awaited with a request's decoded body before its latency begins."""


def plan_reply(
    script: Script,
    request: JudgeRequest,
    key: bytes,
    nth: int,
    answer: AnswerFunction | None = None,
) -> FakeReply:
    """The reply to one attempt of a request.

    Args:
        script: of the judge.
        request: the request.
        key: the sha-256 of its body.
        nth: number of this admitted attempt of the body, from 1.
        answer: content of the reply instead of the script's verdict.

    Raises:
        Exception: any that `answer` raises.
    """
    refused = format_refusal(script.structured, request.body)
    if refused is not None:
        return refused
    content, attempt = (
        content_draws(script.seed, request.messages),
        attempt_draws(script.seed, key, nth),
    )
    fault = choose_fault(
        script.faults, content=content, attempt=attempt, nth=nth, tokens=request.tokens
    )
    latency_s = script.latency.of(attempt)
    if isinstance(fault, Status):
        return _status(fault, latency_s)
    if isinstance(fault, Moderation | Exhausted):
        refused = (
            moderation_reply(fault.form, content)
            if isinstance(fault, Moderation)
            else exhausted_reply(fault)
        )
        return msgspec.structs.replace(refused, latency_s=latency_s, fault=fault.name)
    form = RequestedFormat()
    if request.api in (
        "chat",
        "completions",
        "responses",
    ):  # other APIs get the script's own verdict
        script, form = script_for_request(script, request.messages, request.body)
    texts = verdict_texts(script, request.messages, content, form)
    message = _faulty_message(texts, fault, content)
    if message is None:
        right = _right_answer(script, request, texts, answer)
        message = AssistantMessage(content=right) if isinstance(right, str) else right
    whole = completion(script, request, message, name=f"{key.hex()[:16]}-{nth}")
    reply = FakeReply(body=b"", latency_s=latency_s, fault="" if fault is None else fault.name)
    return _with_body(reply, fault, whole, attempt.variant)


def _right_answer(
    script: Script, request: JudgeRequest, texts: VerdictTexts, answer: AnswerFunction | None
) -> str | AssistantMessage:
    if answer is not None:
        return answer(request.body)
    return obedient_content(script, request.messages) if script.obeys else texts.right()


def _status(fault: Status, latency_s: float) -> FakeReply:
    wait_s = fault.retry_after_s
    headers = {} if wait_s is None else {"Retry-After": f"{wait_s:g}"}
    reply = error_reply(fault.status, fault.message, headers=headers, fault=fault.name)
    # A server rejects with 429 at once; other errors come after the latency
    return reply if fault.status == 429 else msgspec.structs.replace(reply, latency_s=latency_s)


def _faulty_message(
    texts: VerdictTexts, fault: AnyFault | None, content: Draws
) -> AssistantMessage | None:
    """The faulty message; None where the fault is not in the message."""
    message: AssistantMessage | None = None
    match fault:
        case Empty():
            message = AssistantMessage(content=pick(content.variant, EMPTY), tokens=fault.tokens)
        case Ending():
            message = _ended_early(texts, fault, content)
        case Garbage():
            message = AssistantMessage(content=pick(content.variant, PROSE))
        case OutOfRange():
            message = AssistantMessage(content=texts.outside())
        case Length(thinking=True):
            message = AssistantMessage(content=None, finish_reason="length", thinking=PROSE[0])
        case Length():
            # One of the three looks like a verdict, a wrong one
            cut = pick(content.variant, ("", PROSE[0][:27], texts.wrong()))
            message = AssistantMessage(content=cut, finish_reason="length")
        case Refusal():
            message = _refusal(fault, content)
    return message


def _ended_early(texts: VerdictTexts, fault: Ending, content: Draws) -> AssistantMessage:
    form = fault.content
    if form == "mixed":
        form = pick(content.variant, ("none", "verdict"))
    text = "" if form == "none" else texts.wrong()
    return AssistantMessage(content=text, finish_reason=fault.word)


def _refusal(fault: Refusal, content: Draws) -> AssistantMessage:
    form = fault.form
    if form == "mixed":
        form = pick(content.variant, ("field", "text", "filter"))
    text = pick(content.second, REFUSALS)
    match form:
        case "field":
            return AssistantMessage(content=None, refusal=text)
        case "text":
            return AssistantMessage(content=text)
    return AssistantMessage(content="", finish_reason="content_filter")


def _with_body(
    reply: FakeReply, fault: AnyFault | None, whole: dict[str, Any], variant: float
) -> FakeReply:
    """`reply` with its body, and with the faults of JSON and of the connection.

    Args:
        reply: without a body.
        fault: of this attempt.
        whole: the JSON object of a right reply, or of one with a faulty message.
        variant: draw in [0, 1) for the kind or position of the fault.
    """
    replace = msgspec.structs.replace
    if isinstance(fault, WrongTypes | ErrorInBody):
        other = (
            wrong_types(whole, variant)
            if isinstance(fault, WrongTypes)
            else with_error(whole, fault.code, fault.message)
        )
        return replace(reply, body=msgspec.json.encode(other))
    body = msgspec.json.encode(whole)
    match fault:
        case None:
            return replace(reply, body=body, verdict=True)
        case TruncatedJson():
            return replace(reply, body=body[: 1 + int(variant * (len(body) - 1))])
        case Reset(sent=sent, graceful=graceful):
            return replace(reply, body=body, sent=sent, then="close" if graceful else "reset")
        case Hang(sent=sent):
            return replace(reply, body=body, sent=sent, then="hang")
    return replace(reply, body=body)
