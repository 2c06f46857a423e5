"""From a request to what the fake judge will do about it: pure, and the same on every run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from zerowait.testing.judge_request import JudgeRequest
from zerowait.testing.completions import Said, completion, with_error, wrong_types
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
    chosen,
)
from zerowait.testing.requested_format import AskedForm
from zerowait.testing.obedience import obedient_content
from zerowait.testing.replies import FakeReply, failed_reply, moderated, unpaid
from zerowait.testing.script import Script
from zerowait.testing.verdicts import (
    EMPTY,
    PROSE,
    REFUSALS,
    VerdictWords,
    as_asked,
    verdict_words_for,
)

PlannedReply: TypeAlias = Callable[[dict[str, Any]], str]
"""A test's own judge: from the request's decoded body to the content of the reply."""
Hold: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
"""What a test lets a request wait for: given the request's decoded body."""


def planned(
    script: Script, ask: JudgeRequest, key: bytes, nth: int, answer: PlannedReply | None = None
) -> FakeReply:
    """The reply to the `nth` admitted attempt (from 1) of the body with this `key`.

    Raises:
        Exception: whatever `answer` raises.
    """
    content, attempt = (
        content_draws(script.seed, ask.messages),
        attempt_draws(script.seed, key, nth),
    )
    fault = chosen(script.faults, content=content, attempt=attempt, nth=nth, tokens=ask.tokens)
    latency_s = script.latency.of(attempt)
    if isinstance(fault, Status):
        return _status(fault, latency_s)
    if isinstance(fault, Moderation | Exhausted):
        refused = moderated(fault.form, content) if isinstance(fault, Moderation) else unpaid(fault)
        return msgspec.structs.replace(refused, latency_s=latency_s, fault=fault.name)
    form = AskedForm()
    if ask.api in ("chat", "responses"):  # a reward model's number is whatever the script says
        script, form = as_asked(script, ask.messages, ask.body)
    words = verdict_words_for(script, ask.messages, content, form)
    said = _said(words, fault, content)
    if said is None:
        said = Said(content=_right(script, ask, words, answer))
    whole = completion(script, ask, said, name=f"{key.hex()[:16]}-{nth}")
    reply = FakeReply(body=b"", latency_s=latency_s, fault="" if fault is None else fault.name)
    return _on_the_wire(reply, fault, whole, attempt.variant)


def _right(
    script: Script, ask: JudgeRequest, words: VerdictWords, answer: PlannedReply | None
) -> str:
    if answer is not None:
        return answer(ask.body)
    return obedient_content(script, ask.messages) if script.obeys else words.right


def _status(fault: Status, latency_s: float) -> FakeReply:
    wait_s = fault.retry_after_s
    headers = {} if wait_s is None else {"Retry-After": f"{wait_s:g}"}
    reply = failed_reply(fault.status, fault.message, headers=headers, fault=fault.name)
    # a judge that turns requests away does so at the door
    return reply if fault.status == 429 else msgspec.structs.replace(reply, latency_s=latency_s)


def _said(words: VerdictWords, fault: AnyFault | None, content: Draws) -> Said | None:
    """What the judge says instead of the right content; None when the words are not at fault."""
    said: Said | None = None
    match fault:
        case Empty():
            said = Said(content=pick(content.variant, EMPTY), tokens=fault.tokens)
        case Ending():
            said = _broken_off(words, fault, content)
        case Garbage():
            said = Said(content=pick(content.variant, PROSE))
        case OutOfRange():
            said = Said(content=words.outside)
        case Length(thinking=True):
            said = Said(content=None, finish_reason="length", thinking=PROSE[0])
        case Length():
            # one of the three looks like a verdict, and is another than the right one
            cut = pick(content.variant, ("", PROSE[0][:27], words.wrong))
            said = Said(content=cut, finish_reason="length")
        case Refusal():
            said = _refusal(fault, content)
    return said


def _broken_off(words: VerdictWords, fault: Ending, content: Draws) -> Said:
    form = fault.content
    if form == "mixed":
        form = pick(content.variant, ("none", "verdict"))
    text = "" if form == "none" else words.wrong
    return Said(content=text, finish_reason=fault.word)


def _refusal(fault: Refusal, content: Draws) -> Said:
    form = fault.form
    if form == "mixed":
        form = pick(content.variant, ("field", "text", "filter"))
    text = pick(content.second, REFUSALS)
    match form:
        case "field":
            return Said(content=None, refusal=text)
        case "text":
            return Said(content=text)
    return Said(content="", finish_reason="content_filter")


def _on_the_wire(
    reply: FakeReply, fault: AnyFault | None, whole: dict[str, Any], variant: float
) -> FakeReply:
    """`reply` with its body, and with the faults that are not in the words."""
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
