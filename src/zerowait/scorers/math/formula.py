"""Formulas: the answers that texts are or end in, and whether two of them are equal.

What cannot be read as mathematics keeps its text, which equals the same text and nothing else.
"""

from __future__ import annotations

import re
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from importlib.util import find_spec
from typing import NamedTuple

from zerowait.errors import MissingExtraError
from zerowait.patterns import lazy_pattern
from zerowait.scorers.math.comparison import has_value, same
from zerowait.scorers.math.expression import (
    Number,
    TooLargeError,
    UndefinedError,
    UnreadableError,
    decimal,
)
from zerowait.scorers.math.latex import WORDS_BEGIN, WORDS_END, plain_spelling
from zerowait.scorers.math.notation import MathAnswer, Time, in_words, read_answer
from zerowait.scorers.math.prose import (
    answer_of,
    is_denied,
    listed_at_end,
    plain_answer,
    stated_answers,
)
from zerowait.scorers.math.unit import unit_of

_LONGEST_CHARS = 1000
_TAIL_CHARS = 4000
_END_CHARS = 40
_SHORT_WORDS = 12
_PLAIN_NUMBER = lazy_pattern(
    r"([-+]?)(?:(\d{1,50})(?:/(\d{1,50}))?|\\[dt]?frac\{(\d{1,50})\}\{(\d{1,50})\})"
)
_SPACED = lazy_pattern(r"[-+]?\d{1,3}(?:[ '\u00a0\u2009\u202f]\d{3})+(?:\.\d+)?")
_GROUPED = lazy_pattern(r"\d,\d{3}(?!\d)")
_DECIMAL_COMMA = lazy_pattern(r"([-+]?)(\d{1,30}),(\d{1,30})")
_EUROPEAN = lazy_pattern(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+,\d+(?![\d.,])")
_COMBINATION = lazy_pattern(r"C\s*\(\s*(\d{1,5})\s*,\s*(\d{1,5})\s*\)")
_WORDY = lazy_pattern(r"[^\W\d_]{3}|[\u3040-\u9fff]")
_ONE_IN_BRACES = lazy_pattern(r"(?<=[_^])\{(\w|\\[A-Za-z]+)\}")
_BEHIND_COMMAND = lazy_pattern(r"(\\[A-Za-z]+)\s+")
_APART = lazy_pattern(r"(?<=\w)\s+(?=\w)|(?<=,)\s+(?=\d{3}(?!\d))")  # 1 2 is no 12
_MARKS = str.maketrans("", "", f" \t\n{WORDS_BEGIN}{WORDS_END}")

# What GSM8K's solutions write beside their sums, and the sign that ends a proof.
_CALCULATED = lazy_pattern(r"<<[^<>\n]{0,80}>>")
_END_OF_PROOF = lazy_pattern(
    r"[\s.]*(?:\$+\s*\\(?:blacksquare|square|Box|qed|checkmark)(?:\{\})?\s*\$+"
    r"|\\(?:blacksquare|square|Box|qed)(?:\{\})?|[\u220e\u25a0\u25a1\u2713\u2705]"
    r"|\bQ\.?\s?E\.?\s?D\b)\.?\s*\Z"
)

_SPAN = r"\$\$[^$]+\$\$|\$[^$\n]+\$|\\\[.+?\\\]|\\\(.+?\\\)"
_PIECE = r"(?:[^\s$]*[\d\\\u221e\u03c0\u00bc-\u00be\u2150-\u215e\u221a][^\s$]*)"
_CANDIDATE = lazy_pattern(
    rf"(?:{_SPAN}|(?:\b[A-Za-z]\s*(?:[<>=\u2264\u2265\u2260]|[<>!]=)\s*)?"
    rf"{_PIECE}(?:\s*[-+*/=^\u00d7\u2212]\s*{_PIECE})*)",
    re.DOTALL,
)
_WORD_AFTER = lazy_pattern(r"\s+[A-Za-z]{2}")
_BEHIND = lazy_pattern(
    r"\s*(%|\\%|[A-Za-z]+(?:\s?/\s?[a-z]+|\^\d|\u00b2|\u00b3)?(?:\s+per\s+[a-z]+)?)"
)


class Formula(NamedTuple):
    """A text, and what it can be read as, which may be nothing."""

    text: str
    key: str
    """The text without the marks that have no meaning."""
    readings: tuple[MathAnswer, ...]

    @property
    def is_wordy(self) -> bool:
        """Whether it is an answer in words, which a different text can be told from."""
        bare = re.sub(r"\\[A-Za-z]+", "", self.key)
        return not self.readings and _WORDY.search(bare) is not None and "=" not in bare


def require_math() -> None:
    """Raises a MissingExtraError unless mpmath, which computes what is irrational, is installed."""
    if find_spec("mpmath") is None:
        raise MissingExtraError("the scorer math", extra="math")


def warm_up() -> None:
    """Import mpmath: a tenth of a second that belongs to no sample."""
    require_math()
    half, cosine = read_formula(r"\frac{1}{2}"), read_formula(r"\cos\frac{\pi}{3}")
    assert half is not None and cosine is not None  # noqa: PT018, S101 - the first example
    are_equal(half, cosine, decimals=6)


@lru_cache(maxsize=4096)
def read_formula(text: str, *, is_gold: bool = False) -> Formula | None:
    r"""The formula that all of `text` is; None when there is none, or more than 1,000 characters.

    Of a gold answer a decimal comma is read only where it can hardly be a list: 0,5 and 3,14.

    >>> read_formula(r"\frac{1}{2}").readings[0].value, read_formula("...") is None
    (Fraction(1, 2), True)
    """
    bare = text.strip()
    if len(bare) > 2 and bare[0] == bare[-1] == "$" and bare[-2] != "\\":
        bare = bare.strip("$").strip()
    if not bare or len(text) > _LONGEST_CHARS:
        return None
    number = _plain_number(bare)
    if number is not None:
        return Formula(bare, bare, (number,))
    try:
        spelling = plain_spelling(bare)
    except UnreadableError:
        return None
    key = _APART.sub("_", _BEHIND_COMMAND.sub(r"\1", _ONE_IN_BRACES.sub(r"\1 ", spelling)))
    key = key.translate(_MARKS).replace("\\ldots", "...")
    if not any(char.isalnum() or char == "\\" for char in key):
        return None
    try:
        return Formula(bare, key, tuple(_readings(spelling, is_gold=is_gold)))
    except (UndefinedError, TooLargeError):
        return Formula(bare, key, ())


def find_formula(text: str, *, several: bool) -> Formula | None:
    """The formula that the end of `text` gives as its answer; None when there is none.

    After "final answer is" or "answer is" if these words are there, else the last formula or
    number, with the whole of a list or a tuple that it belongs to. Only the last 4,000 characters
    are looked at.

    Args:
        text: prose.
        several: go back to earlier candidates for as long as one cannot be read.
    """
    tail = _CALCULATED.sub("", text[-_TAIL_CHARS:])
    tail = plain_answer(tail[:-_END_CHARS] + _END_OF_PROOF.sub("", tail[-_END_CHARS:]))
    stated = stated_answers(tail)
    if stated is not None:
        return _agreed(stated)
    listed = listed_at_end(tail)
    if listed is not None:
        return read_formula(listed)
    for candidate in reversed(list(_CANDIDATE.finditer(tail))):
        if is_denied(tail[: candidate.start()]):
            return None
        found = read_formula(_with_unit(candidate, tail))
        if found is not None and found.readings:
            return found
        if not several:
            return None
    return None


def answer_in_tags(text: str) -> Formula | None:
    """The formula that the inside of ``<answer>`` is, or gives as its answer; None without one.

    >>> answer_in_tags("about 5 apples").key, answer_in_tags("3, or maybe 4 of them")
    ('5', None)
    """
    if len(text.split()) > _SHORT_WORDS or stated_answers(text) is not None:
        return find_formula(text, several=True)
    answer = answer_of(text)
    return None if answer is None else read_formula(answer)


def are_equal(gold: Formula, said: Formula, *, decimals: int) -> bool:
    """Whether the two are mathematically equal, by one of the ways in which each can be read.

    The same text is equal. A decimal fraction equals what it is the rounding of, if it has at least
    `decimals` significant digits. 50 % equals 50 as well as 0.5, but 0.5 % does not equal 50 %. A
    unit may be left out, but 5 m does not equal 5 km. Braces are no parentheses: the set {1, 2} is
    no interval.
    """
    if gold.key == said.key:
        return True
    return any(same(one, other, decimals) for one in gold.readings for other in said.readings)


def is_undefined(formula: Formula) -> bool:
    r"""Whether a formula has no value, as 1/0 has none.

    >>> is_undefined(read_formula(r"\frac{1}{2-2}")), is_undefined(read_formula(r"\infty"))
    (True, False)
    """
    try:
        return bool(formula.readings) and not has_value(formula.readings[0])
    except (TooLargeError, RecursionError):
        return False


def _readings(spelling: str, *, is_gold: bool) -> list[MathAnswer]:
    found: list[MathAnswer] = []
    texts = [(spelling, True)]
    if _SPACED.fullmatch(spelling):
        texts = [(re.sub(r"[^\d.+-]", "", spelling), True)]
    elif _EUROPEAN.search(spelling):
        point = str.maketrans({".": "", ",": "."})
        texts = [(_EUROPEAN.sub(lambda number: number[0].translate(point), spelling), True)]
    elif (choice := _COMBINATION.fullmatch(spelling)) is not None:  # and a point C
        texts.append((rf"\binom{{{choice[1]}}}{{{choice[2]}}}", True))
    elif _GROUPED.search(spelling) and any(each in spelling for each in "([{"):
        texts.append((spelling, False))
    for each, grouped in texts:
        try:
            found.append(read_answer(each, grouped=grouped))
        except (UnreadableError, RecursionError):
            continue
    if found and isinstance(found[0], Time):
        with suppress(UnreadableError):  # a ratio, too
            found.append(read_answer(spelling.replace(":", " : ")))
    comma = _with_decimal_comma(spelling, is_gold=is_gold)
    if comma is not None:
        found.append(comma)
    if not found and (words := in_words(spelling)) is not None:
        found.append(words)
    return found


def _with_decimal_comma(spelling: str, *, is_gold: bool) -> Number | None:
    """3,14 as 3.14."""
    match = _DECIMAL_COMMA.fullmatch(spelling)
    if match is None or (len(match[3]) == 3 and match[2] != "0"):
        return None
    if is_gold and match[2] != "0" and len(match[3]) < 2:
        return None
    try:
        number = decimal(f"{match[2]}.{match[3]}")
    except UnreadableError:
        return None
    return number._replace(value=-number.value) if match[1] == "-" else number


def _agreed(answers: list[str | None]) -> Formula | None:
    """The formula that all of `answers` are; None where they differ, or one cannot be read."""
    formulas = [None if answer is None else read_formula(answer) for answer in answers]
    last = formulas[-1]
    others = formulas[:-1]
    if last is None or not all(each and are_equal(each, last, decimals=6) for each in others):
        return None
    return last


def _with_unit(candidate: re.Match[str], tail: str) -> str:
    text = candidate[0].strip().strip("`*_").rstrip(".,;:!?").strip("`*_")
    if text.startswith("(") and ")" not in text:
        text = text[1:]
    if text.endswith(")") and "(" not in text:
        text = text[:-1]
    behind = _BEHIND.match(tail, candidate.end())
    if behind is None or (behind[1] == "in" and _WORD_AFTER.match(tail, behind.end())):
        return text
    if behind[1].endswith("%") or unit_of(f"5 {behind[1]}"):
        return f"{text} {behind[1]}"
    return text


def _plain_number(text: str) -> Number | None:
    """A whole number or a fraction of two, without the cost of a parser; else None."""
    match = _PLAIN_NUMBER.fullmatch(text)
    if match is None:
        return None
    top, bottom = match[2] or match[4], int(match[3] or match[5] or "1")
    if not bottom:
        return None
    return Number(Fraction(int(match[1] + top), bottom))
