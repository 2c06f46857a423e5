"""What a judge's HTTP reply means: an Outcome, its cost, and which model gave it.

Servers differ in everything but the outline of a chat completion. So the outline is typed and the
rest is looked at: content is text, a list of parts, or null with the answer in a tool call;
reasoning may come in a field of its own; a field of the wrong type is a field that is missing.
Replies of other APIs are read in the same form; see `zerowait.judge.apis`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec

from zerowait.config.schema import VerdictRule
from zerowait.judge.answer import answer_text, plain
from zerowait.judge.apis import as_chat
from zerowait.judge.thinking import spoken, without_thinking
from zerowait.judge.verdict import parse
from zerowait.types import Abstain, FailureKind, Outcome, Score

# Providers have many words for an end that is none ("length", "abort", "error", ...): only these
# say that the judge had finished.
_WHOLE = frozenset(
    (
        *("", "stop", "stop_sequence", "end_turn", "eos", "eos_token", "complete", "completed"),
        *("finished", "tool_calls", "tool_use", "function_call"),
    )
)
_FILTERED = frozenset(
    (
        *("content_filter", "safety", "sensitive", "recitation", "blocklist", "refusal"),
        *("prohibited_content", "spii", "guardrail_intervened"),
    )
)
_TEXT_PARTS = ("text", "output_text", None)
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


class Usage(msgspec.Struct, frozen=True):
    """The tokens that a reply says it cost; 0 where it does not say."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class Origin(NamedTuple):
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


class _Choice(msgspec.Struct, frozen=True):
    message: _Message
    finish_reason: Any = None


class _Completion(msgspec.Struct, frozen=True):
    choices: list[_Choice]
    usage: Any = None
    model: Any = None
    system_fingerprint: Any = None


_DECODER = msgspec.json.Decoder(_Completion)


def read_reply(body: bytes, rule: VerdictRule) -> Outcome:
    """The judgement in a reply's body: a Score, or an Abstain that says why there is none.

    - ``refused``: the provider's filter cut in, the refusal field is filled, or the text refuses
      and gives no verdict.
    - ``truncated``: the answer was cut at ``max_tokens`` before its verdict was complete. Asking
      once more with twice as many tokens makes sense; see `wants_more_tokens`.
    - ``out_of_range``: the verdict is outside the rule's range.
    - ``unparseable``: everything else without a verdict, an empty answer included.

    Raises nothing for any bytes.
    """
    return read_with(body, partial(parse, rule=rule))


def read_with(body: bytes, read: Callable[[str], Score | Abstain]) -> Outcome:
    """What `read` finds in the answer of a reply's body; the kinds are those of `read_reply`."""
    completion = _decoded(body)
    if completion is None:
        return Abstain(FailureKind.UNPARSEABLE, "the reply is no chat completion and no response")
    choice = completion.choices[0]
    finish = _string(choice.finish_reason).casefold()
    if finish in _FILTERED:
        return Abstain(FailureKind.REFUSED, f"the provider ended the reply with {finish!r}")
    if _string(choice.message.refusal).strip():
        return Abstain(FailureKind.REFUSED, "the judge filled the refusal field")
    text = _answer(choice.message)
    return _judgement(text, read) if finish in _WHOLE else _cut_short(text, read)


def wants_more_tokens(outcome: Outcome) -> bool:
    """Whether asking once more with twice the ``max_tokens`` makes sense."""
    return isinstance(outcome, Abstain) and outcome.kind is FailureKind.TRUNCATED


def well_formed(body: bytes) -> bool:
    """Whether `body` is a completion with an answer in it, however useless the answer.

    >>> well_formed(b'{"choices":[{"message":{"content":null}}]}')
    True
    >>> well_formed(b'{"choices":[{"mess')
    False
    """
    return _decoded(body) is not None


def reply_usage(body: bytes) -> Usage:
    """The tokens that the reply in `body` says it cost."""
    completion = _decoded(body)
    usage = completion.usage if completion else None
    if not isinstance(usage, dict):
        return Usage()
    return Usage(_tokens(usage.get("prompt_tokens")), _tokens(usage.get("completion_tokens")))


def reply_origin(body: bytes) -> Origin:
    """The model and fingerprint that the reply in `body` names."""
    completion = _decoded(body)
    if completion is None:
        return Origin()
    return Origin(_string(completion.model), _string(completion.system_fingerprint))


def _decoded(body: bytes) -> _Completion | None:
    try:
        completion = _DECODER.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):  # cut, not JSON, or the other API's
        form = as_chat(body)
        return None if form is None else msgspec.convert(form, _Completion)
    return completion if completion.choices else None


def _judgement(text: str, read: Callable[[str], Score | Abstain]) -> Score | Abstain:
    outcome = _undisputed(text, read)
    if isinstance(outcome, Score) or outcome.kind is not FailureKind.UNPARSEABLE:
        return outcome
    if _REFUSES.match(text) or _REFUSES.match(answer_text(text) or ""):
        return Abstain(FailureKind.REFUSED, "the judge's text refuses and names no verdict")
    return outcome


def _undisputed(text: str, read: Callable[[str], Score | Abstain]) -> Score | Abstain:
    """What `read` finds, unless what stands before the end of thinking names another verdict.

    Where nothing began the thinking, its end may be quoted: "Score: 2. It ends with", and then the
    response's own "</think>" and "Score: 10".
    """
    outcome = read(text)
    before = spoken(plain(text)).before if isinstance(outcome, Score) else ""
    other = read(before) if before.strip() else outcome
    if isinstance(outcome, Score) and isinstance(other, Score) and _said(other) != _said(outcome):
        return Abstain(
            FailureKind.UNPARSEABLE,
            "the reply names different verdicts before and after the end of its thinking, which "
            "has no beginning",
        )
    return outcome


def _said(score: Score) -> tuple[float, object]:
    return score.value, score.detail.get("order")


def _cut_short(text: str, read: Callable[[str], Score | Abstain]) -> Outcome:
    """The verdict of an answer that was going to be longer: only what it began with can be one.

    What stands on the last line may be half of it: "Score: 1" was going to be "Score: 10". A
    verdict further down may be one that the judge was weighing, and a second object may hold
    another.
    """
    first_line, ended, rest = (without_thinking(text) or "").lstrip().partition("\n")
    outcome = read(first_line)
    if (
        ended
        and "{" not in rest
        and not (isinstance(outcome, Abstain) and outcome.kind is FailureKind.UNPARSEABLE)
    ):
        whole = _undisputed(text, read)
        if isinstance(outcome, Abstain) or (
            isinstance(whole, Score) and whole.value == outcome.value
        ):
            return outcome if isinstance(outcome, Abstain) else whole
    return Abstain(FailureKind.TRUNCATED, "the answer reached max_tokens before its verdict")


def _answer(message: _Message) -> str:
    """The text that the judge wrote for us to read; its reasoning field is not for us."""
    text = _visible(message.content)
    return text if text.strip() else _arguments(message)


def _visible(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (part if isinstance(part, Mapping) else {"text": part} for part in content)
    texts = (part.get("text") for part in parts if part.get("type") in _TEXT_PARTS)
    return "".join(text for text in texts if isinstance(text, str))


def _arguments(message: _Message) -> str:
    """The arguments of the one function that the judge called instead of writing."""
    calls = message.tool_calls if isinstance(message.tool_calls, list) else []
    functions = [call.get("function") for call in calls if isinstance(call, dict)]
    functions = functions or [message.function_call]
    if len(functions) != 1 or not isinstance(functions[0], dict):
        return ""
    arguments = functions[0].get("arguments")
    if isinstance(arguments, dict):
        return msgspec.json.encode(arguments).decode()
    return _string(arguments)


def _tokens(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
