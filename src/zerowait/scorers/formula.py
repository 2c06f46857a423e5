"""Mathematics as math-verify reads and compares it; nothing else imports that library.

Its two faces, ``parse`` and ``verify``, set process-wide alarm signals or warn that they do not.
We call the functions under them: whoever calls us sets the deadline, by ending the process.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

from zerowait.errors import MissingExtraError
from zerowait.scorers.prose import answer_of, listed_at_end, plain, stated_answers
from zerowait.scorers.unit import unit_of, without_unit

_LONGEST_CHARS = 1000
_TAIL_CHARS = 4000
_SHORT_WORDS = 12
_SIGNIFICANT_DIGITS = 15
# 12\,345 and 12{,}345 are one number to a reader, and two to a parser.
_GROUPING = re.compile(r"(?<=\d)(?:\\[,!;: ]|~|\{,\})(?=\d{3}(?!\d))")
_SCIENTIFIC = re.compile(r"([-+]?\d+(?:\.\d+)?)[eE]([-+]?\d+)")
_MIXED = re.compile(r"([-+\u2212]?)(\d{1,50})\s+(\d{1,50})\s*/\s*(\d{1,50})")
_SPACED = re.compile(r"[-+]?\d{1,3}(?: \d{3})+(?:\.\d+)?")
# Without a grouping: a new line or a tie between two numbers makes them two.
_PARTED = re.compile(r"\s*\\\\\s*(?=[-+\d])|(?<=\d)~(?!\d{3}(?!\d))(?=\d)")
_ALTERNATIVES = re.compile(
    r"\\(?:text|mathrm|mbox)\w*\{[^{}]*(?:\(\s*|\bmaybe |\bperhaps )or\b|\\%.*,.*%"
)
_TIMES = re.compile(r"(?<=\d)\s*[xX\u00d7]\s*(?=10\^)")
_PERCENT = re.compile(r"\s*(?:\\?%|\\text\{\s*(?:\\?%|percent)\s*\}|percent)\s*\Z")
_SPEED = re.compile(r"(?<=\d)\s*[a-z]{1,3}/[a-z]{1,3}(?:\^?\{?\d\}?)?\Z")

_SET = re.compile(r"(?:\\left)?\s*\\\{[^(\[]*\\\}")
_INTERVAL = re.compile(r"(?:\\left)?\s*[(\[].*,.*[)\]]", re.DOTALL)
_PLAIN_NUMBER = re.compile(
    r"([-+]?)(?:(\d{1,50})(?:/(\d{1,50}))?|\\[dt]?frac\{(\d{1,50})\}\{(\d{1,50})\})"
)


class Formula(NamedTuple):
    """An expression, and whether a percent sign stood behind it."""

    expression: Any
    percent: bool
    text: str


def require_math_verify() -> None:
    """Raises a MissingExtraError unless math-verify is installed."""
    if find_spec("math_verify") is None:
        raise MissingExtraError("the scorer math", extra="math")


def warm_up() -> None:
    """Import math-verify and fill its parser's tables: a second that belongs to no sample."""
    require_math_verify()
    half = read_formula(r"\frac{1}{2}")
    assert half is not None  # noqa: S101 - the library's own first example
    are_equal(half, half, decimals=6)


@lru_cache(maxsize=4096)
def read_formula(text: str) -> Formula | None:
    r"""The formula that `text` is, all of it; None when it is none that can be read.

    Dollar signs around it, grouping commas, units and percent signs are understood. A text of more
    than 1,000 characters is no answer, nor is an equation that is false, such as 6 = 5.

    >>> str(read_formula(r"\frac{1}{2}").expression), read_formula("???") is None
    ('1/2', True)
    """
    bare = text.strip().strip("$").strip()
    if not bare or len(text) > _LONGEST_CHARS or _ALTERNATIVES.search(bare):
        return None
    percent = _PERCENT.search(bare)
    spelt = _spelt_plainly(bare[: percent.start()] if percent else without_unit(bare))
    number = _plain_number(spelt)
    if number is not None:
        return Formula(number, bool(percent), bare)
    found = _extracted(rf"\boxed{{{spelt}}}", several=True) or _extracted(spelt, several=True)
    if not found:
        return None
    expression, shared = _without_percent(found[0])
    answer = _as_answer(expression)
    return None if answer is None else Formula(answer, shared or bool(percent), bare)


def find_formula(text: str, *, several: bool) -> Formula | None:
    """The formula that the end of `text` gives as its answer; None when there is none.

    After "final answer is" or "answer is" if these words are there, else the last formula or
    number, with the whole of a list or a tuple that it belongs to. Only the last 4,000 characters
    are looked at.

    Args:
        text: prose.
        several: go back to earlier candidates for as long as one cannot be read.
    """
    tail = plain(text[-_TAIL_CHARS:])
    stated = stated_answers(tail)
    if stated is not None:
        return _agreed(stated)
    listed = listed_at_end(tail)
    if listed is not None:
        return read_formula(listed)
    found = _extracted(tail, several=several)
    if not found:
        return None
    expression, percent = _without_percent(found[0])
    return Formula(expression, percent, str(expression))


def answer_in_tags(text: str) -> Formula | None:
    """The formula that the inside of ``<answer>`` is, or gives as its answer; None without one.

    >>> str(answer_in_tags("about 5 apples").expression), answer_in_tags("3, or maybe 4 of them")
    ('5', None)
    """
    if len(text.split()) > _SHORT_WORDS or stated_answers(text) is not None:
        return find_formula(text, several=True)
    answer = answer_of(text)
    return None if answer is None else read_formula(answer)


def _agreed(answers: list[str | None]) -> Formula | None:
    """The formula that all of `answers` are; None where they differ, or one cannot be read."""
    formulas = [None if answer is None else read_formula(answer) for answer in answers]
    last = formulas[-1]
    others = formulas[:-1]
    if last is None or not all(each and are_equal(each, last, decimals=6) for each in others):
        return None
    return last


def are_equal(gold: Formula, said: Formula, *, decimals: int) -> bool:
    """Whether the two are mathematically equal; decimal fractions are rounded to `decimals` places.

    50 % equals 50 as well as 0.5, but 0.5 % does not equal 50 %. A unit may be left out, but 5 m
    does not equal 5 km. Braces are no parentheses: the set {1, 2} is no interval.

    Reference:
        Kydlíček et al. 2025, Math-Verify (github.com/huggingface/Math-Verify).
    """
    if _are_of_two_kinds(gold.text, said.text):
        return False
    if gold.percent == said.percent:
        return _equal(gold.expression, said.expression, decimals)
    whole, share = gold.expression, said.expression
    if gold.percent:
        return _equal(whole, share, decimals) or _equal(_hundredth(whole), share, decimals)
    return _equal(whole, share, decimals) or _equal(whole, _hundredth(share), decimals)


def is_undefined(formula: Formula) -> bool:
    r"""Whether a formula has no value, as 1/0 has none.

    >>> is_undefined(read_formula(r"\frac{1}{2-2}")), is_undefined(read_formula(r"\infty"))
    (True, False)
    """
    from sympy import Basic, Pow, nan, zoo

    expression = formula.expression
    if not isinstance(expression, Basic):
        return False
    return expression.has(zoo, nan) or any(
        power.exp.is_negative and power.base.doit().is_zero for power in expression.atoms(Pow)
    )


def _as_answer(expression: Any) -> Any:
    """An equation with its unknown in front; None for one that is false whatever the unknown is."""
    from sympy import And, Eq, S, Set

    sides = expression.args if isinstance(expression, And) else [expression]
    if not all(isinstance(each, Eq) for each in sides):
        return expression
    # "x in (1, 2)" is read as an equation with a set
    try:
        if not expression.has(Set) and expression.doit() is S.false:
            return None
    except (ArithmeticError, AttributeError, TypeError, ValueError):  # sympy: 5 = 5 = x, for one
        return None
    if isinstance(expression, Eq) and expression.lhs.is_number and expression.rhs.is_Symbol:
        return Eq(expression.rhs, expression.lhs, evaluate=False)
    return expression


def _are_of_two_kinds(gold: str, said: str) -> bool:
    """Whether the two cannot be equal by the units behind them, or the brackets around them."""
    one, other = unit_of(gold), unit_of(said)
    if one and other:
        return one != other
    first, second = (_SET, _INTERVAL) if _SET.fullmatch(gold) else (_INTERVAL, _SET)
    return bool(first.fullmatch(gold) and second.fullmatch(said))


def _spelt_plainly(text: str) -> str:
    scientific = _SCIENTIFIC.fullmatch(text)
    if scientific:
        return rf"{scientific[1]} \cdot 10^{{{scientific[2]}}}"
    mixed = _MIXED.fullmatch(text)
    if mixed:
        whole, top, bottom = map(int, mixed.groups()[1:])
        return f"{mixed[1]}{whole * bottom + top}/{bottom}"
    if _SPACED.fullmatch(text):
        return text.replace(" ", "")
    text = _TIMES.sub(r"\\cdot ", text)
    if r"\begin" not in text:
        text = _PARTED.sub(",", text)
    return _SPEED.sub("", _GROUPING.sub("", text)).replace(r"\varnothing", r"\emptyset")


def _plain_number(text: str) -> Any:
    """A whole number or a fraction of two, without the milliseconds of a parser; else None."""
    match = _PLAIN_NUMBER.fullmatch(text.replace("\u2212", "-"))
    if match is None:
        return None
    from sympy import Rational

    sign, top, bottom = match[1], match[2] or match[4], match[3] or match[5] or "1"
    return Rational(int(sign + top), int(bottom)) if int(bottom) else None


def _extracted(text: str, *, several: bool) -> list[Any]:
    from math_verify.parser import extract_target_from_pred

    found: list[Any] = extract_target_from_pred(
        text,
        _patterns(),
        fallback_mode="no_fallback",
        extraction_mode="any_match" if several else "first_match",
    )
    return found


def _without_percent(expression: Any) -> tuple[Any, bool]:
    """The 50 of what math-verify reads as 50 %, which is 50 times an unevaluated 1/100."""
    from sympy import Mul, Rational, UnevaluatedExpr

    hundredth = UnevaluatedExpr(Rational(1, 100))
    if isinstance(expression, Mul) and hundredth in expression.args:
        return Mul(*(each for each in expression.args if each != hundredth)), True
    return expression, False


def _equal(gold: Any, said: Any, decimals: int) -> bool:
    from math_verify.grader import sympy_expr_eq

    return bool(
        sympy_expr_eq(gold, said, decimals, _SIGNIFICANT_DIGITS, allow_set_relation_comp=True)
    )


def _hundredth(expression: Any) -> Any:
    """A percentage as a share; what cannot be divided stays as it is."""
    try:
        return expression / 100
    except TypeError:
        return expression


@cache
def _patterns() -> list[Any]:
    from math_verify.parser import (
        ExprExtractionConfig,
        LatexExtractionConfig,
        get_extraction_regexes,
    )

    latex = LatexExtractionConfig(boxed_match_priority=0)
    patterns: list[Any] = get_extraction_regexes([latex, ExprExtractionConfig()])
    return patterns
