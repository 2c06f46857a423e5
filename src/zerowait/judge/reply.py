"""What a judge's HTTP reply means: an Outcome, its cost, and which model gave it.

Servers differ in everything but the outline of a chat completion. So the outline is typed and the
rest is looked at: content is text or a list of parts; reasoning may come in a field of its own;
a field of the wrong type is a field that is missing. How a reply ended, and what an error in it
means, `zerowait.attribution` knows.
Replies of other APIs are read in the same form; see `zerowait.judge.apis`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec

from zerowait.attribution import ReplyEnding, attributed, ending_of, is_error, is_told, said_ending
from zerowait.completion import Completion
from zerowait.config.schema import VerdictRule
from zerowait.judge.apis import as_chat
from zerowait.judge.parsing.answer import plain_characters, split_thinking, visible_answer
from zerowait.judge.parsing.verdict import parse
from zerowait.types import Abstain, FailureKind, Outcome, Score

_PARTS = ("order", "criteria", "met")
_TEXT_PARTS = ("text", "output_text", None)
_RUN_OF_BLANKS = 32
_REFUSES = re.compile(
    r"""\s* (?:
        (?:I['\u2019]?\ ?a?m\ )? (?:very\ |so\ |really\ )? (?:sorry|afraid|apologi[sz]e)
      | (?:unfortunately,?\ )? I (?:\ am|['\u2019]m) \ (?:not\ able|unable)
      | (?:unfortunately,?\ )? I\ (?:can\ ?not|can['\u2019]t|won['\u2019]t|will\ not|must\ decline)
      | as\ an\ AI
      | 很?抱歉 | 对不起 | 我(?:无法|不能)
    )""",
    re.VERBOSE | re.IGNORECASE,
)


class ServedModel(NamedTuple):
    """Who answered, as the reply says it: the served model's name and its fingerprint, or ""."""

    model: str = ""
    fingerprint: str = ""

    def __str__(self) -> str:
        return f"{self.model} ({self.fingerprint})" if self.fingerprint else self.model


class _Message(msgspec.Struct, frozen=True):
    content: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    error: Any = None
    finish_reason: Any = None
    stop_reason: Any = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message | None = None
    finish_reason: Any = None
    finishReason: Any = None  # noqa: N815 - as some servers write it
    stop_reason: Any = None
    native_finish_reason: Any = None
    error: Any = None
    logprobs: Any = None
    text: Any = None
    index: Any = None


class _Outline(msgspec.Struct, frozen=True):
    choices: list[_Choice]
    usage: Any = None
    model: Any = None
    system_fingerprint: Any = None
    error: Any = None
    finish_reason: Any = None
    stop_reason: Any = None


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NO_ERRORS = (None, None, None)
_DECODER = msgspec.json.Decoder(_Outline)


def read_reply(body: bytes, rule: VerdictRule, *, endings: Collection[str] = ()) -> Outcome:
    """The judgement in a reply's body: a Score, or an Abstain that says why there is none.

    A verdict is read from a reply that ended by itself, and from its answer: not from reasoning,
    and not from the arguments of a tool.

    - ``refused``: the provider's filter cut in, the refusal field is filled, or the text refuses
      and gives no verdict.
    - ``truncated``: the answer was cut at ``max_tokens``. Asking once more with twice as many
      tokens makes sense.
    - ``http_error``: the reply tells of an error, did not end in any known way, or nothing was
      generated for it (`Completion.failure`). A client asks again where it gets such a reply.
    - ``out_of_range``: the verdict is outside the rule's range.
    - ``unparseable``: everything else without a verdict, an empty answer included.

    Raises nothing for any bytes.

    Args:
        body: of a 2xx, as it came.
        rule: the form and range of the verdict.
        endings: further words in ``finish_reason`` that mean a complete reply.
    """
    completion = decode_reply(body, endings)
    if completion is None:
        return Abstain(FailureKind.UNPARSEABLE, "the reply is no chat completion and no response")
    return read_completion(completion, partial(parse, rule=rule))


def read_completion(completion: Completion, read: Callable[[str], Score | Abstain]) -> Outcome:
    """What `read` finds in the text of a decoded reply; the kinds are those of `read_reply`."""
    if completion.failure is not None:
        return Abstain(completion.failure.kind, completion.failure.words)
    if completion.ending is ReplyEnding.FILTERED:
        finish = completion.finish_reason
        return Abstain(FailureKind.REFUSED, f"the provider ended the reply with {finish!r}")
    if completion.refusal.strip():
        return Abstain(FailureKind.REFUSED, "the judge filled the refusal field")
    if completion.ending is ReplyEnding.CUT:
        return Abstain(FailureKind.TRUNCATED, _why_cut(completion.text))
    return _judgement(completion.text, read)


def _why_cut(text: str) -> str:
    """Why an answer was cut at ``max_tokens``, in words.

    Servers that enforce a JSON schema let a model write blanks between the parts without end.
    """
    blanks = len(text) - len(text.rstrip())
    if blanks < _RUN_OF_BLANKS:
        return "the answer reached max_tokens before its end"
    return f"the answer reached max_tokens in a run of {blanks} blanks"


def decode_reply(body: bytes, endings: Collection[str] = ()) -> Completion | None:
    """The typed completion in a reply's body, of whichever API; None where there is none.

    It has a `failure` where the body tells of an error, ended in an unknown way, or nothing was
    generated: these are the provider's failures, and retried.

    Args:
        body: of the reply.
        endings: further words that mean a complete reply.

    >>> decode_reply(b'{"choices":[{"message":{"content":"7"},"finish_reason":"stop"}]}').text
    '7'
    >>> cut = b'{"choices":[{"message":{"content":"7"},"finish_reason":"abort"}]}'
    >>> decode_reply(cut).failure.kind
    <FailureKind.HTTP_ERROR: 'http_error'>
    """
    reply = _outline(body)
    if reply is None:
        return None
    choice = reply.choices[0]
    message = choice.message or _Message()
    is_stop = choice.finish_reason == "stop" and choice.native_finish_reason is None
    finish = "stop" if is_stop else _finish(reply)  # nearly always
    ending = ReplyEnding.COMPLETE if is_stop else ending_of(finish, endings)
    usage = reply.usage if isinstance(reply.usage, dict) else {}
    text, refusal = _visible(message.content), _string(message.refusal)
    if isinstance(message.content, list) and not refusal:
        refusal = _refusal_part(message.content)
    is_whole = ending in (ReplyEnding.CUT, ReplyEnding.FILTERED) or (
        ending is ReplyEnding.COMPLETE
        and choice.message is not None
        and bool(text.strip() or refusal.strip() or not _is_blank(choice, finish, usage))
    )
    errors = (reply.error, choice.error, message.error)
    is_answer = is_whole and not (errors != _NO_ERRORS and any(map(is_error, errors)))
    return Completion(
        text=text,
        reasoning=_string(message.reasoning_content) or _string(message.reasoning),
        refusal=refusal,
        ending=ending,
        finish_reason=finish if isinstance(finish, str) else "",
        prompt_tokens=_tokens(usage.get("prompt_tokens")),
        completion_tokens=_tokens(usage.get("completion_tokens")),
        model=_string(reply.model),
        fingerprint=_string(reply.system_fingerprint),
        failure=None if is_answer else attributed(200, body, accepted=endings),
        logprobs=choice.logprobs,
    )


def _finish(reply: _Outline) -> Any:
    choice = reply.choices[0]
    places = (choice, choice.message, reply)
    return said_ending(*(msgspec.structs.asdict(each) for each in places if each is not None))


def _is_blank(choice: _Choice, finish: object, usage: dict[str, Any]) -> bool:
    """Whether a message without a text was never written, rather than written without one."""
    message = choice.message or _Message()
    if message.tool_calls or message.function_call:
        return False
    if not is_told(finish):
        return True
    return _is_free(usage) and not (message.reasoning or message.reasoning_content)


def _is_free(usage: dict[str, Any]) -> bool:
    """Whether the reply says that not one token was written for it."""
    written = usage.get("completion_tokens")
    if written is None:
        total = usage.get("total_tokens")
        return isinstance(total, int) and total == usage.get("prompt_tokens")
    return bool(written == 0)


def _outline(body: bytes) -> _Outline | None:
    try:
        reply = _DECODER.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        if body.startswith(_BYTE_ORDER_MARK):
            return _outline(body.removeprefix(_BYTE_ORDER_MARK))
        is_json = isinstance(error, msgspec.ValidationError)  # of another API
        if not is_json and (mended := _mended(body)) is not None:
            return _outline(mended)
        form = as_chat(body)
        return None if form is None else msgspec.convert(form, _Outline)
    if not reply.choices:
        return None
    first = reply.choices[0]
    if len(reply.choices) > 1:  # one was asked for; another index is another answer
        first = next((each for each in reply.choices if each.index == 0), first)
        reply = msgspec.structs.replace(reply, choices=[first])
    if first.message is None and isinstance(first.text, str):  # legacy completions
        first = msgspec.structs.replace(first, message=_Message(content=first.text))
        reply = msgspec.structs.replace(reply, choices=[first])
    has_none = first.message is None and ending_of(first.finish_reason) is ReplyEnding.COMPLETE
    return None if has_none and not is_error(first.error) else reply


def _mended(body: bytes) -> bytes | None:
    """A body as strict JSON: its halves of surrogate pairs are "?", its NaN and Infinity null.

    Servers write them whose JSON library lets them. None for a body that is cut, or no JSON.
    """
    try:
        tree = json.loads(body, parse_constant=lambda _: None)
        return json.dumps(tree, ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return None


def _judgement(text: str, read: Callable[[str], Score | Abstain]) -> Score | Abstain:
    """What `read` finds in the visible text of a reply.

    Where nothing began the thinking, the mark that ends it may be quoted: "Score: 2. It ends with",
    and then the response's own "</think>" and "Score: 10". So a verdict only counts when no other
    one stands before such a mark.
    """
    outcome = read(text)
    if isinstance(outcome, Score):
        before = split_thinking(plain_characters(text)).before
        if not before.strip() or _is_same(read(before), outcome):
            return outcome
        return Abstain(
            FailureKind.UNPARSEABLE,
            "the reply names different verdicts before and after the end of its thinking, which "
            "has no beginning",
        )
    is_refusal = _REFUSES.match(text) or _REFUSES.match(visible_answer(text) or "")
    if outcome.kind is FailureKind.UNPARSEABLE and is_refusal:
        return Abstain(FailureKind.REFUSED, "the judge's text refuses and names no verdict")
    return outcome


def _is_same(other: Score | Abstain, score: Score) -> bool:
    """Whether `other` is no Score, or one that says the same of each response and criterion."""
    return isinstance(other, Abstain) or (
        other.value == score.value
        and all(other.detail.get(key) == score.detail.get(key) for key in _PARTS)
    )


def _visible(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list):
        return ""
    parts = (part if isinstance(part, Mapping) else {"text": part} for part in content)
    texts = (
        part.get("text")
        for part in parts
        if part.get("type") in _TEXT_PARTS and part.get("thought") is not True
    )
    return "".join(text for text in texts if isinstance(text, str))


def _refusal_part(parts: list[Any]) -> str:
    """What a part of the content refuses with, as Responses and newer chat APIs write it."""
    said = (part.get("refusal") for part in parts if isinstance(part, Mapping))
    return next((text for text in said if isinstance(text, str) and text.strip()), "")


def _tokens(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
