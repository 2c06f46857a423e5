"""What the small judge compares, and which verdict follows: text and numbers, no weights."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from zerowait.testing.asks import Ask, BadRequestError
from zerowait.types import content_text

_MOST_REFERENCES = 16

_MARKED = re.compile(
    r"^<<<BEGIN (?P<name>\S+) (?P<code>[0-9a-f]+)>>>\n(?P<text>.*?)\n"
    r"<<<END (?P=name) (?P=code)>>>$",
    re.DOTALL | re.MULTILINE,
)
_SCALE = re.compile(
    r"a (?P<kind>whole|decimal) number from (?P<low>-?[0-9.]+) \(lowest\)"
    r" to (?P<high>-?[0-9.]+) \(highest\)"
)
_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"[\w'.-]+")
_EMPTY_WORDS = frozenset(("a", "an", "the", "is", "was", "are", "it", "s", "its", "answer"))
_INVISIBLE = "\u200b"  # breaks up control tokens inside the marked parts


class Question(NamedTuple):
    """What is compared with what.

    Args:
        response: what the policy wrote.
        references: the accepted answers.
        prompt: what the policy was asked; may be empty.
        low, high: the scale of the verdict.
        whole: whether the verdict is a whole number.
    """

    response: str
    references: list[str]
    prompt: str = ""
    low: float = 1.0
    high: float = 10.0
    whole: bool = True


def question_in(ask: Ask) -> Question:
    """What a request asks to be compared.

    Raises:
        BadRequestError: no response or no reference answer is found in its messages.
    """
    texts = [content_text(message.get("content")) for message in ask.messages]
    parts = marked_parts(texts) or _json_object(texts[-1])
    response, reference = parts.get("response"), parts.get("reference")
    if response is None:
        raise BadRequestError("no response to judge was found: use the rubric 'reference'")
    references = [line.strip() for line in (reference or "").splitlines() if line.strip()]
    if not references:
        raise BadRequestError(
            "no reference answer was found: this judge only compares meanings; use the rubric "
            "'reference' and give every sample a ground_truth"
        )
    found = _SCALE.search(_MARKED.sub("", "\n".join(texts)))
    asked = Question(response, references[:_MOST_REFERENCES], parts.get("prompt", ""))
    if found is None:
        return asked
    low, high = float(found["low"]), float(found["high"])
    return asked._replace(low=low, high=high, whole=found["kind"] == "whole")


def pairs_of(question: Question) -> list[tuple[str, str]]:
    """The pairs of texts whose similarity decides, three for each reference, or one each.

    A wrong answer in a full sentence repeats the prompt, and so resembles the right one. Two things
    tell them apart: what the response says beyond the prompt, and whether the prompt comes nearer
    to the response when the reference is added to it.
    """
    said, asked = question.response, question.prompt
    if not asked.strip():
        return [(said, reference) for reference in question.references]
    news = news_in(said, asked)
    return [
        pair
        for reference in question.references
        for pair in ((news, reference), (said, f"{asked} {reference}"), (said, asked))
    ]


def news_in(response: str, prompt: str) -> str:
    """The words of a response that its prompt does not have, or all of them when there are none.

    >>> news_in("The capital of Peru is Lima.", "What is the capital of Peru?")
    'Lima.'
    """
    known = _EMPTY_WORDS.union(_WORD.findall(prompt.lower()))
    tokens = _TOKEN.findall(response)
    news = [token for token in tokens if not known.issuperset(_WORD.findall(token.lower()))]
    return " ".join(news) or response


def agreement(question: Question, similarities: Sequence[float]) -> float:
    """How sure it is, in [0, 1], that the response agrees with the nearest reference.

    The coefficients are a logistic regression's over about 3,000 right, wrong and evasive answers
    about capitals and civics. Of as many that it had not seen, at least 94 in 100 right ones got 8
    or more of 10, and at least 95 in 100 wrong ones 4 or less; asked the other way round ("X is the
    capital of which country?"), 88 in 100 right ones got 8 or more.

    >>> question = Question("Paris.", ["Paris"], "What is the capital of France?")
    >>> round(agreement(question, [0.9, 0.8, 0.6]), 2)
    1.0
    """
    if not question.response.strip():
        return 0.0
    if not question.prompt.strip():
        return max(_logistic(12.3 * near - 6.8) for near in similarities)
    threes = zip(similarities[::3], similarities[1::3], similarities[2::3], strict=True)
    return max(
        _logistic(11.1 * news + 18.2 * (with_reference - prompt_alone) - 7.6)
        for news, with_reference, prompt_alone in threes
    )


def verdict_text(question: Question, agreed: float) -> str:
    """The reply of a judge that is `agreed` sure, in [0, 1].

    >>> print(verdict_text(Question("Paris.", ["Paris"]), 0.97))
    It means the same as the reference with a certainty of 97 percent.
    Score: 10
    """
    value = question.low + agreed * (question.high - question.low)
    shown = f"{value:.0f}" if question.whole else f"{value:.3f}"
    return (
        f"It means the same as the reference with a certainty of {100 * agreed:.0f} percent.\n"
        f"Score: {shown}"
    )


def marked_parts(texts: Sequence[str]) -> dict[str, str]:
    """The marked parts by ``prompt``, ``reference`` and ``response``, as far as there are any.

    What stands inside one is never taken for another.
    """
    names = {"PROMPT": "prompt", "GROUND_TRUTH": "reference", "RESPONSE": "response"}
    found: dict[str, str] = {}
    for part in _MARKED.finditer("\n".join(texts)):
        name = names.get(part["name"])
        if name is not None:
            found.setdefault(name, part["text"].replace(_INVISIBLE, ""))
    return found


def _json_object(text: str) -> dict[str, str]:
    """The parts of a message that is one JSON object; a list of references becomes lines."""
    try:
        fields = msgspec.json.decode(text, type=_Fields)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return {}
    found: dict[str, Any] = {
        "response": _first(fields.response, fields.answer),
        "reference": _first(fields.reference, fields.ground_truth),
        "prompt": _first(fields.prompt, fields.question),
    }
    return {name: text for name, text in found.items() if text is not None}


class _Fields(msgspec.Struct, frozen=True):
    response: str | None = None
    answer: str | None = None
    reference: str | list[str] | None = None
    ground_truth: str | list[str] | None = None
    prompt: str | None = None
    question: str | None = None


def _first(*given: str | list[str] | None) -> str | None:
    found = next((value for value in given if value is not None), None)
    return "\n".join(found) if isinstance(found, list) else found


def _logistic(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))
