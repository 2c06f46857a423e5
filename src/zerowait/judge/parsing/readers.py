"""Readers of one verdict: a number in its range, or a word of a choice."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TypeVar

import msgspec

from zerowait.config.schema import VerdictRule
from zerowait.judge.parsing.answer import folded, plain_characters
from zerowait.judge.parsing.claims import (
    CLOSING,
    OPENING,
    ClaimReader,
    Reading,
    Verdict,
    criterion_key_pattern,
    criterion_label_pattern,
    key_pattern,
    label_pattern,
)
from zerowait.judge.parsing.context import Remarks, is_unqualified, remarks, scale_remark
from zerowait.patterns import lazy_pattern

_WRAPPED = rf"[{OPENING}]*+(?:\\(?:boxed|text|mathbf|mathrm)\{{[{OPENING}]*+)*+"
_CLOSED = rf"[{CLOSING}]*+(?:</[a-z_]{{1,24}}>)?[{CLOSING}]*+"
_UNIT = (
    r"(?: [*_`]*+ [ \t]*+ (?: 分(?![之制]) | 点(?![0-9]) | 점 | points?\b | pts\b | stars?\b"
    r" | punkten?\b | puntos?\b | punti\b | pontos?\b | балл\w{0,2}\b ) )?"
)
SOLID = (  # what stands between an article and the verdict: "a solid 8"
    r"(?:solid|strong|firm|clear|generous|fair|respectable|decent|weak|low|high|modest|comfortable|easy|good|definite|borderline)"
)
_EMOJI = "[\u2600-\u2794\u2798-\u27bf\U0001f300-\U0001f9ff]"
_STARS = lazy_pattern(
    rf"[{OPENING}]*+(?P<full>[\u2605\u2b50\U0001f31f]++)(?P<empty>\u2606*+){_CLOSED}"
)
_FEWEST_STARS = 3
_NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_WORDS = {name: float(value) for value, name in enumerate(_NAMES)}
_NAMED = "|".join(_NAMES)
_NUMBER = lazy_pattern(
    rf"""
    {_WRAPPED} (?: \{{(?=[0-9.]+\}}) | <(?=[0-9.]+>) )?+
    (?: (?:an?[ ])?{SOLID}[ ] | an?[ ](?=[0-9]) )? {_WRAPPED}
    (?: (?P<number> [+-]?+ (?: [0-9]++ (?:\.[0-9]++ | ,[0-9]{{1,2}}(?=[ ]?/) )? | \.[0-9]++ ) )
      | (?P<word> {_NAMED} )\b )
    (?<![<]) (?:(?<=[0-9])>(?=[\s*_`.]|\Z))?+ {_UNIT}
    (?: [{CLOSING}]*+ [ \t]*+ [(\[]?
        (?: / | out[ ]of(?:[ ]an?[ ](?:possible|maximum[ ]of|total[ ]of))?+\b
          | of\b | von\b | sur\b | sobre\b | su\b | из\b
          | on[ ]an?[ ]scale[ ](?:of|from)[ ](?:[0-9.]++[ ]?(?:to|-)[ ]?)? )
        [ \t*_`]*+ (?P<scale> [0-9]++ (?:\.[0-9]++)? | (?:{_NAMED})\b )
      | [ \t]*+ (?P<percent> % ) )?
    {_UNIT}
    {_CLOSED}
    (?: [ \t]*+ {_EMOJI}++ (?= [ \t*_`]*+ (?: \n | \Z ) ) )?+
    """,
    re.VERBOSE,
)
_NUMBERS = lazy_pattern(r"[0-9]++(?:\.[0-9]++)?")
_ENDS_CLAUSE = (
    r"(?=[\s*_`\"']*+(?:[.,;:!?)\]|/]|\Z"
    r"|(?:is|was|would|seems?|may|might|instead|rather|then|now|at)\b))"
)
# Digits of any script, raised and lowered ones, and those in circles, brackets and squares.
_DIGIT = (
    r"[\d\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u2089\u2150-\u218f\u2460-\u249b\u24ea-\u24ff"
    r"\u2776-\u2793\u3021-\u3029\u3192-\u3195\u3220-\u33ff]"
)
_ANY_NUMBER = rf"[-+±~≈<>]?[ ]?\.?{_DIGIT}"
_NUMBER_REMARKS = remarks(
    _ANY_NUMBER,
    rf"[-+]?(?:\d++(?:\.\d++)?|(?:{_NAMED})\b)"
    rf"(?:[ ]?(?:points?\b|stars?\b|分|out[ ]of[ ]\d++))?{_ENDS_CLAUSE}",
    denied=False,
)


_GAP = re.compile(r"[ \t]*+")
_CANDIDATE = r"(?:the[ ])?(?:response|answer|assistant|option|model|candidate|output|summary)"
_BETTER = (
    r"[ ](?:is|was)[ ](?:(?:clearly|slightly|much|far|the|marginally|somewhat|significantly)[ ])*+"
    r"(?:better|best|stronger)"
)


class NumberReader(msgspec.Struct, frozen=True):
    """Reads numbers.

    Args:
        high: the highest verdict, which a scale such as "/10" has to name.
        whole: whether only whole numbers are verdicts.
        label: finds the labels of verdicts in text.
        key: matches the keys of verdicts in JSON.
        remarks: patterns of other numbers behind a verdict.
        inner_key: of a criterion's reader: matches the keys in an object of that name.
    """

    high: float
    whole: bool
    label: re.Pattern[str]
    key: re.Pattern[str]
    remarks: Remarks = _NUMBER_REMARKS
    inner_key: re.Pattern[str] | None = None

    def inside(self) -> NumberReader:
        """The reader of an object that holds the verdict on one criterion."""
        return _inside(self)

    def read_at(self, text: str, position: int) -> Reading | None:
        """The number that begins at `position`, if one does."""
        match = _NUMBER.match(text, position)
        if match is None:
            return self._stars_at(text, position)
        end = match.end()
        scale = 100.0 if match["percent"] else _value(match["scale"] or f"{self.high}")
        known = scale == self.high and not self.is_other_scale(scale_remark(text, end))
        if known and is_unqualified(text, end, self.remarks):
            value = _value(match["number"] or match["word"])
            return Reading(self.from_number(value), end, scaled=match["scale"] is not None)
        return Reading(None, end)

    def _stars_at(self, text: str, position: int) -> Reading | None:
        """The stars that begin at `position`, where the empty ones tell their scale."""
        match = _STARS.match(text, position)
        if match is None or len(match["full"] + match["empty"]) != self.high:
            return None
        if self.high < _FEWEST_STARS:  # one star may be a decoration
            return None
        value, end = float(len(match["full"])), match.end()
        gap = _GAP.match(text, end)
        told = _NUMBER.match(text, gap.end() if gap else end)
        if told is not None:  # "\u2605\u2605\u2605\u2605\u2606 (4/5)"
            reading = self.read_at(text, told.start())
            same = reading is not None and reading.verdict == value
            return Reading(value if same else None, told.end(), scaled=True)
        known = is_unqualified(text, end, self.remarks)
        return Reading(value if known else None, end, scaled=True)

    def is_other_scale(self, said: str) -> bool:
        """Whether the highest number in `said` is not the highest verdict."""
        numbers = _NUMBERS.findall(said)
        return bool(numbers) and max(map(float, numbers)) != self.high

    def from_number(self, value: float) -> Verdict | None:
        """The number itself, or None where a whole one was asked for and this is none."""
        if self.whole and math.isfinite(value) and not float(value).is_integer():
            return None
        return float(value)


class ChoiceReader(msgspec.Struct, frozen=True):
    """Reads words of a choice, in any case and with Markdown marks around them.

    Args:
        words: from each word in lower case to the word as the rule writes it.
        word: matches one of them.
        remarks: patterns of other words behind a verdict.
        label: finds the labels of verdicts in text.
        key: matches the keys of verdicts in JSON.
        inner_key: of a criterion's reader: matches the keys in an object of that name.
    """

    words: dict[str, str]
    word: re.Pattern[str]
    remarks: Remarks
    label: re.Pattern[str]
    key: re.Pattern[str]
    inner_key: re.Pattern[str] | None = None

    def inside(self) -> ChoiceReader:
        """The reader of an object that holds the verdict on one criterion."""
        return _inside(self)

    def read_at(self, text: str, position: int) -> Reading | None:
        """The word that begins at `position`, if one does."""
        match = self.word.match(text, position)
        if match is None:
            return None
        if is_unqualified(text, match.end(), self.remarks):
            return Reading(self.words.get(match["word"]), match.end())
        return Reading(None, match.end())

    def is_other_scale(self, said: str) -> bool:
        """False: a choice has no scale."""
        del said
        return False

    def from_number(self, value: float) -> Verdict | None:
        """The word that a JSON number means, where numbers are among the words."""
        return self.words.get(f"{value:.15g}")


ReaderT = TypeVar("ReaderT", NumberReader, ChoiceReader)


def _inside(reader: ReaderT) -> ReaderT:
    return msgspec.structs.replace(reader, key=reader.inner_key or reader.key, inner_key=None)


def _value(said: str) -> float:
    return _WORDS[said] if said in _WORDS else float(said.replace(",", "."))


def reader_for(rule: VerdictRule) -> NumberReader | ChoiceReader:
    """The reader of the verdicts that `rule` asks for."""
    if rule.choice is not None:
        return _choice_reader(tuple(rule.choice))
    _, high = bounds(rule)
    return _number_reader(float(high), rule.integer is not None)


def criterion_reader(rule: VerdictRule, name: str) -> ClaimReader:
    """The reader of verdicts under `rule` that are labelled with the criterion `name`."""
    reader = reader_for(rule)
    label, key = criterion_label_pattern(name), criterion_key_pattern(name)
    return msgspec.structs.replace(reader, label=label, key=key, inner_key=reader.key)


def bounds(rule: VerdictRule) -> tuple[float, float]:
    """The least and the greatest score under `rule`; 0 and 1 for a choice."""
    return rule.integer or rule.number or (0.0, 1.0)


@lru_cache(maxsize=64)
def _number_reader(high: float, whole: bool) -> NumberReader:  # noqa: FBT001 - a cache key
    return NumberReader(
        high, whole, label=label_pattern(numeric=True), key=key_pattern(numeric=True)
    )


@lru_cache(maxsize=64)
def _choice_reader(choice: tuple[str, ...]) -> ChoiceReader:
    words: dict[str, str] = {}
    for word in choice:
        words.setdefault(folded(plain_characters(word).strip()), word)
    longest_first = sorted(filter(None, words), key=len, reverse=True)
    either = "|".join(re.escape(word) for word in longest_first) or r"(?!)"
    as_clause = rf"(?:{either})(?!\w){_ENDS_CLAUSE}"
    letters = "".join(word for word in words if len(word) == 1 and "a" <= word <= "z")
    named, better = "", ""
    if letters:  # "Response A", "A is better than B"
        named = rf"(?:{_CANDIDATE}[ ](?=[*_`\"]*[{letters}](?!\w)))?+[*_`\"]*+"
        than = rf"(?:[ ]than[ ](?:{_CANDIDATE}[ ])?[{letters}](?!\w))?+"
        better = rf"(?:(?<=\b[{letters}]){_BETTER}{than})?+"
    return ChoiceReader(
        words=words,
        word=re.compile(rf"{_WRAPPED}{named}(?P<word>{either}){_CLOSED}{better}"),
        remarks=remarks(f"{as_clause}|[0-9]", as_clause),
        label=label_pattern(numeric=False, words=tuple(words) if len(words) < 4 else ()),
        key=key_pattern(numeric=False),
    )
