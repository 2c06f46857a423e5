"""The scorer ``gsm8k``: the final number of a worked solution."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from zerowait.scorers.answers import gold_texts, no_gold, shown
from zerowait.scorers.compat import (
    Compat,
    published_number,
    published_text,
    same_as_published,
)
from zerowait.scorers.number import last_number, leading_number, read_number
from zerowait.scorers.thinking import spoken
from zerowait.types import Abstain, Sample, Score

Method: TypeAlias = Literal["strict", "flexible"]

_AFTER_HASHES = re.compile(r"####[ \t]*+((?:(?!####)[^\n])*)")
_DIGIT = re.compile(r"\d")


def final_number(response: str, method: Method = "strict") -> Fraction | None:
    r"""The number a response ends in; None when there is none.

    `strict` takes the number after the last ``####``, `flexible` the number in the last
    ``\boxed{}`` or else the last number of the text. Currencies, units, percent signs, grouping,
    fractions, bold, boxes, a trailing dot and the unicode minus are understood.

    Reference:
        Cobbe et al. 2021, GSM8K (arXiv:2110.14168).

    >>> final_number("so 3 * 360 = 1080\n#### **$1,080.**")
    Fraction(1080, 1)
    >>> final_number("It falls to -5 degrees.", "flexible")
    Fraction(-5, 1)
    >>> final_number("the answer is 5") is None
    True
    """
    if method == "flexible":
        return last_number(response)
    marked = _AFTER_HASHES.findall(response)
    last = next((line for line in reversed(marked) if _DIGIT.search(line)), None)
    return None if last is None else leading_number(last)


def gsm8k(
    sample: Sample,
    *,
    method: Method = "strict",
    score: float = 1.0,
    format_score: float = 0.0,
    compat: Compat | None = None,
) -> Score | Abstain:
    """`score` when the response's final number is the gold one, `format_score` for another number.

    A response without a number outside of its thinking is worth 0.

    Args:
        sample: its ground truth is a number, a text of one, a worked solution that ends in ``####
            number``, or a list of those.
        method: where the number is looked for, see `final_number`.
        score: of a right number.
        format_score: of a wrong number.
        compat: score as this published code does.

    >>> gsm8k(Sample("", "#### 72.0", "72")).value
    1.0
    """
    golds = _gold_numbers(sample.ground_truth)
    if not golds:
        return no_gold(sample.ground_truth, wanted="a number")
    if compat is not None:
        return _published(sample, method, compat, score=score, format_score=format_score)
    number = final_number(spoken(sample), method)
    if number is None:
        return Score(0.0, f"no number by the {method} rule")
    return Score(score if number in golds else format_score, f"answered {shown(str(number))}")


def _published(
    sample: Sample, method: Method, compat: Compat, *, score: float, format_score: float
) -> Score | Abstain:
    if not isinstance(sample.ground_truth, str | int | float):
        return no_gold(sample.ground_truth, wanted=f"one number, as by the rule of {compat}")
    text = published_number(published_text(sample, compat), method=method, compat=compat)
    if text is None:
        return Score(0.0, f"no number by the rule of {compat}")
    right = same_as_published(text, sample.ground_truth)
    return Score(score if right else format_score, f"answered {shown(text)}")


def _gold_numbers(ground_truth: Any) -> list[Fraction]:
    texts = gold_texts(ground_truth)
    read = (read_number(text.rpartition("####")[2]) for text in texts)
    return [number for number in read if number is not None]
