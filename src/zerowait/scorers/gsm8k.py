"""The final number of a worked solution."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, TypeAlias

from zerowait.scorers.answer import shown
from zerowait.scorers.compat import (
    Compat,
    published_number,
    published_text,
    same_as_published,
)
from zerowait.scorers.gold import no_gold
from zerowait.types import Abstain, Sample, Score

Method: TypeAlias = Literal["strict", "flexible"]

_DIGITS = r"(?:\d[\d,]*(?:\.\d+)?|\.\d+)"
_AFTER_HASHES = re.compile(rf"####[ \t]*([-+\u2212]?\$?[-\u2212]?{_DIGITS})")
_RUN = re.compile(r"\d[\d,.]*")
_UNSIGNED = re.compile(r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+")
# The 5 of .5 is a fraction, the 5 of "end.5" is not.
_POINT = re.compile(r"(?:^|[^\w.])\.$")
# A minus belongs to the number only where no operand stands before it: 10-5 ends in 5.
_SIGN = re.compile(r"(?:^|[^\w.)\]])[-\u2212]\$?$")


def final_number(response: str, method: Method = "strict") -> Decimal | None:
    r"""The number a response ends in; None when there is none.

    `strict` takes the last ``#### number``, `flexible` the last number of the text. Grouping
    commas, ``$``, a trailing dot and the unicode minus are understood.

    Reference:
        Cobbe et al. 2021, GSM8K (arXiv:2110.14168).

    >>> final_number("so 3 * 360 = 1080\n#### $1,080.")
    Decimal('1080')
    >>> final_number("It falls to -5 degrees.", "flexible")
    Decimal('-5')
    >>> final_number("the answer is 5") is None
    True
    """
    if method == "strict":
        marked = _AFTER_HASHES.findall(response)
        return read_number(marked[-1]) if marked else None
    return _last_number(response)


def read_number(text: str) -> Decimal | None:
    """`text` as a number; None when it is not one.

    >>> read_number("$1,234.50") == Decimal("1234.5"), read_number("seven")
    (True, None)
    """
    bare = text.strip().replace(",", "").replace("$", "").replace("\u2212", "-").rstrip(".")
    try:
        number = Decimal(bare)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def gsm8k(
    sample: Sample,
    *,
    method: Method = "strict",
    score: float = 1.0,
    format_score: float = 0.0,
    compat: Compat | None = None,
) -> Score | Abstain:
    """`score` when the response's final number is the gold one, `format_score` for another number.

    A response without a number is worth 0. The gold is a number, a text of one, or a worked
    solution that ends in ``#### number``. `compat` scores as the published code does.

    >>> gsm8k(Sample("", "#### 72.0", "72")).value
    1.0
    """
    gold = _gold_number(sample.ground_truth)
    if gold is None:
        return no_gold(sample.ground_truth, wanted="a number")
    if compat is not None:
        text = published_number(published_text(sample, compat), method=method, compat=compat)
        if text is None:
            return Score(0.0, f"no number by the rule of {compat}")
        right = same_as_published(text, sample.ground_truth)
        return Score(score if right else format_score, f"answered {shown(text)}")
    number = final_number(sample.response, method)
    if number is None:
        return Score(0.0, f"no number by the {method} rule")
    return Score(score if number == gold else format_score, f"answered {shown(str(number))}")


def _last_number(text: str) -> Decimal | None:
    # Runs of digits are found ten times faster than numbers; only the last run is looked at.
    runs = _RUN.findall(text)
    if not runs:
        return None
    *_, last = _UNSIGNED.finditer(runs[-1])
    digits, start = last[0].replace(",", ""), text.rindex(runs[-1]) + last.start()
    if "." not in digits and _POINT.search(text[max(start - 2, 0) : start]):
        digits, start = f".{digits}", start - 1
    number = Decimal(digits)
    return number.copy_negate() if _SIGN.search(text[max(start - 3, 0) : start]) else number


def _gold_number(ground_truth: Any) -> Decimal | None:
    if isinstance(ground_truth, str):
        return read_number(ground_truth.rpartition("####")[2])
    if isinstance(ground_truth, bool) or not isinstance(ground_truth, int | float):
        return None
    return read_number(str(ground_truth))
