"""Finds the verdicts that a text claims: labelled values, and a last line that is only a value.

What a value looks like is the `ClaimReader`'s business; whether the text around it leaves it a
verdict, `zerowait.judge.parsing.context` decides. Every pattern is matched in linear time, against
text in lower case (`folded`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from math import inf
from typing import NamedTuple, Protocol, TypeAlias

from zerowait.judge.parsing.context import (
    Remarks,
    follows_full_stop,
    introduced_as_other,
    sentence_continues,
)
from zerowait.patterns import lazy_pattern

Verdict: TypeAlias = float | str
Spans: TypeAlias = Sequence[tuple[int, int]]
"""Ranges [start, end) of a text, in order, that are not searched."""


class Reading(NamedTuple):
    """A value found at one place of a text.

    Args:
        verdict: the value; None for something that is not a verdict, such as a range.
        end: where it ends.
        scaled: whether it comes with its scale, as in "7/10".
    """

    verdict: Verdict | None
    end: int
    scaled: bool = False


class VerdictClaim(NamedTuple):
    """A verdict that the text claims.

    Args:
        verdict: the value, or None where the text claims something that is not a verdict.
        start: where the claim begins.
        end: where it ends.
        final: whether it fills the last line, so that it overrules earlier claims.
        reason: the reason in the same JSON object; "" elsewhere.
    """

    verdict: Verdict | None
    start: int
    end: int
    final: bool
    reason: str = ""


class ClaimReader(Protocol):
    """Reads the values of one verdict rule."""

    @property
    def label(self) -> re.Pattern[str]:
        """Finds the places where a verdict is labelled."""

    @property
    def key(self) -> re.Pattern[str]:
        """Matches the JSON keys that label a verdict."""

    @property
    def inner_key(self) -> re.Pattern[str] | None:
        """Matches the keys of a verdict in the object of one criterion; None without criteria."""

    def inside(self) -> ClaimReader:
        """The reader of what such an object holds."""

    def read_at(self, text: str, position: int) -> Reading | None:
        """The value that begins at `position`, if one does."""

    @property
    def remarks(self) -> Remarks:
        """Patterns of other values in the text behind a verdict."""

    def from_number(self, value: float) -> Verdict | None:
        """The verdict that a JSON number means; None where it is none."""

    def is_other_scale(self, said: str) -> bool:
        """Whether `said`, a remark about a scale, names another scale than the rule's."""


OPENING = r" \t*_`\"'$(\[«"
CLOSING = r"*_`\"'$)\]}»"

_NUMBER_LABELS = (
    r"(?:scores?|rating|grade|mark|verdict|judge?ment|evaluation|assessment|overall|bewertung"
    r"|(?:gesamt)?(?:bewertung|punktzahl)|puntuaci[oó]n|calificaci[oó]n|оценка|балл|ocena"
    r"|punteggio|valutazione|pontua[cç][aã]o|avalia[cç][aã]o|évaluation|beoordeling|puan|điểm"
    r")(?![^\W_])"
    r"|النتيجة|الدرجة|التقييم|स्कोर|คะแนน|arvosana(?![^\W_])"
    r"|评分|得分|分数|打分|评级|评价|总分|总评|スコア|評価|得点|点数|점수|평점"
)
_WITH_SCALE = (
    *("note", "notes", "nota", "voto", "cijfer", "punkte", "points", "result"),
    *("overall quality", "overall impression", "answer quality", "response quality", "total"),
)
"""Labels of other things too, such as a remark or a number of points: only "7/10" counts there."""
_TEXT_LABELS = (
    rf"(?:final|rated|(?P<with_scale>{'|'.join(_WITH_SCALE)}))(?![^\W_])|{_NUMBER_LABELS}"
)
_CHOICE_LABELS = (
    r"(?:answer|choice|winner|preference|decision|prediction|conclusion|result|label|classification|antwort|urteil"
    r"|respuesta)(?![^\W_])"
    rf"|判断|判定|结论|答案|预测|结果|{_NUMBER_LABELS}"
)
_ORDER_LABELS = (
    r"(?:ranking|ranks?|order|winner|(?:better|best|preferred)(?:[ \t_-]response)?|preference)"
    rf"(?![^\W_])|排名|更好的?|{_CHOICE_LABELS}"
)
_LEADS = (
    r"(?:(?:the|my|your|our|its|so|thus|therefore|hence|final|overall|total|weighted|combined"
    r"|composite|aggregate|updated|revised|adjusted|corrected|amended|new|net|assigned|awarded|resulting|given|numeric(?:al)?|general|holistic"
    r"|global|response|answer|quality|evaluation|assessment)(?:[ \t]+|[_-])"
    r"|(?:최종|итоговая|общая|总体)[ ]?|(?:最终|最后|最終|総合|综合|总体|整体|总)的?){0,4}"
)
_LABEL = rf"""
    (?: [\n.!?;,({{。、…] | >(?=[ ]?<) | (?<=<answer)> )  # a line, a clause or a tag begins
    (?: (?<=\n) [ \t]*+ (?P<bullet> [-*+•][ \t]++ | [0-9]{{1,2}}[.)][ \t]++ ) )?
    [ \t\#*_`|★☆⭐➤►▶👉📊📝🏆🔹🔸🎯✨]*+
    (?P<quote>["'<【] | \[{{1,2}} )?
    {_LEADS} (?P<label>%s)
    (?(quote)(?:["'>】]|\]{{1,2}}))
    (?: [ \t]+(?:given|assigned|awarded|finale?|globale?|total[e]?)\b )?
    (?: [ \t]+based[ ]on[ ](?:the|these|this)[ ](?:given[ ])?(?:criteria|rubric|above)\b )?
    (?: [ \t]+(?:of|for)[ \t]+(?:the|this)[ \t]+(?:response|answer|reply|solution|output)\b )?
    [*_`]*+ (?: [ \t]*+ [★☆⭐✨]++ )?
    (?: [ \t]*+ (?P<scale> [(\[](?:[0-9 .,/~-]|to|out|of|from|points?|scale|max|满分|分制?)*+[)\]]
      | (?:out[ ]of|/)[ \t]*+[0-9]++(?![a-z]) ) )?
    [ \t*_`]*+
    (?P<word> is\b | are\b | 为 | 是(?!否) | -(?=[ \t]) | — )?
    [ \t]*+
    (?P<sign> => | [:=]++ | -> | [→➡➜➔⇒] | \| )?
"""
_OTHER_ASPECT = lazy_pattern(
    r"\n[ \t*_#|\u2022-]*+(?:[0-9][.)][ ])?"
    r"(?!(?:the|my|final|overall|total|quality|response|answer|updated|revised|confidence|max\w*)\b)"
    r"[a-z]{3,20}[ _](?:score|rating|grade)[*_]*+[ ]?[:=|]"
)
_CAUSE = lazy_pattern(r"[*_`]*[,;]?[ ](?:because|since)\b")
_LINE_ENDS = lazy_pattern(r"[.!。,|]?[ \t*_`|]*(?:\n|\Z)")
_BLANK_TO_NEXT_LINE = lazy_pattern(r"[ \t*_`]*\n\s*")
_NAMES = frozenset(
    (
        "winner",
        "preference",
        "answer",
        "choice",
        "label",
        "result",
        "prediction",
        "classification",
        "rated",
    )
)
_TAGS = ("<", "【", "[[")
_PROMETHEUS = ("[", "result")  # "[RESULT] 4"
_KEY_QUOTES = ('"', "'")
_BARE_OPENS = lazy_pattern(r"[ \t#]*(?:(?:[→➡➜➔⇒]|[-=]>)[ \t]*)?")
_AFTER_LAST_WORD = " \t\n`*_-=~.!。|$)]}>\"'"


@cache
def label_pattern(*, numeric: bool, words: Sequence[str] = ()) -> re.Pattern[str]:
    """Finds the place where a verdict is labelled; the value may begin at the match's end.

    Args:
        numeric: whether the verdict is a number.
        words: of a choice, which may be its label: "Pass/Fail: Fail".
    """
    labels = _TEXT_LABELS if numeric else _CHOICE_LABELS
    if words:
        named = r"[ ]?/[ ]?".join(re.sub(r"\s+", r"\\s", re.escape(word)) for word in words)
        labels = rf"{named}(?=[*_`\t ]*[:=|])|{labels}"
    return re.compile(_LABEL % labels, re.VERBOSE)


@cache
def key_pattern(*, numeric: bool) -> re.Pattern[str]:
    """Matches a JSON key that labels a verdict."""
    labels = _NUMBER_LABELS if numeric else _CHOICE_LABELS
    return re.compile(rf"{_LEADS}(?:{labels})")


@cache
def criterion_label_pattern(name: str) -> re.Pattern[str]:
    """Finds the places where a verdict is labelled with this name: ``Tool use`` for tool_use."""
    return re.compile(_LABEL % _spelled(name), re.VERBOSE)


@cache
def criterion_key_pattern(name: str) -> re.Pattern[str]:
    """Matches a JSON key that is this name."""
    return re.compile(_spelled(name))


@cache
def order_label_pattern() -> re.Pattern[str]:
    """Finds the place where an order, or the better of two, is labelled."""
    return re.compile(_LABEL % _ORDER_LABELS, re.VERBOSE)


@cache
def order_key_pattern() -> re.Pattern[str]:
    """Matches a JSON key that labels an order."""
    return re.compile(rf"{_LEADS}(?:{_ORDER_LABELS})")


def text_claims(text: str, reader: ClaimReader, skip: Spans) -> Iterator[VerdictClaim]:
    """The labelled verdicts of a text, then its last line where that is only a value.

    Args:
        text: in lower case, beginning with a newline, since a label is found by the character
            before it.
        reader: of the values.
        skip: spans to leave out.
    """
    last_line = _last_line_start(text)
    read = is_within(last_line, skip)
    for claim in labelled_claims(text, reader, skip):
        read = read or claim.end > last_line
        yield claim
    if read:
        return
    if reading := bare_line(text, last_line, reader, whole=last_line == 1):
        alone = follows_full_stop(text, last_line)
        yield VerdictClaim(reading.verdict if alone else None, last_line, reading.end, final=False)


def labelled_claims(text: str, reader: ClaimReader, skip: Spans) -> Iterator[VerdictClaim]:
    """The labelled verdicts of `text`, as in `text_claims`."""
    last_line = _last_line_start(text)
    nested = text.count("{") > 1  # in broken JSON a key may belong to an inner object
    for match in reader.label.finditer(text):
        if is_within(match.start(), skip) or (nested and match["quote"] in _KEY_QUOTES):
            continue
        claim = _labelled(text, match, reader, last_line)
        if claim is not None:
            yield claim


def is_within(position: int, spans: Spans) -> bool:
    """Whether `position` lies in one of the spans, which are in order."""
    before = bisect_right(spans, (position, inf)) - 1
    return before >= 0 and position < spans[before][1]


def bare_line(text: str, start: int, reader: ClaimReader, *, whole: bool) -> Reading | None:
    """The value that fills the line that begins at `start`; None where none does.

    Args:
        text: in lower case.
        start: where the line begins.
        reader: of the values.
        whole: whether the line is the whole text. "3." is a value then; below other lines it is
            taken for a list that broke off.
    """
    opened = _BARE_OPENS.match(text, start)
    reading = reader.read_at(text, opened.end() if opened else start)
    if reading is None or not _LINE_ENDS.match(text, reading.end):
        return None
    if not whole and text[reading.end : reading.end + 1] == "." and text[reading.end - 1].isdigit():
        return None
    return reading


def is_last_word(text: str, position: int) -> bool:
    """Whether no word follows `position`."""
    return len(text.rstrip(_AFTER_LAST_WORD)) <= position


def _labelled(
    text: str, match: re.Match[str], reader: ClaimReader, last_line: int
) -> VerdictClaim | None:
    end = match.end()
    reading = reader.read_at(text, end)
    if reading is None:  # the value may stand alone on the next line
        gap = _BLANK_TO_NEXT_LINE.match(text, end)
        if gap is None or match["word"]:
            return None
        reading = bare_line(text, gap.end(), reader, whole=False)
        if reading is None:
            return _below_heading(text, match, gap.end(), reader)
    fills_line = _LINE_ENDS.match(text, reading.end) is not None
    label = match["label"]
    is_tag = match["quote"] in _TAGS or (match["quote"], label) == _PROMETHEUS
    signed = match["sign"] is not None or is_tag
    weak = (
        not (signed or (match["word"] and reading.scaled))
        or label == "final"
        or (label == "overall" and not reading.scaled)
    )
    if (
        (not (reading.scaled or is_tag) and match.groupdict().get("with_scale") is not None)
        or (not signed and match["word"] is None and label in _NAMES)  # "Answer A" names an answer
        or (weak and not fills_line and not (match["word"] and _gives_cause(text, reading)))
    ):
        return None
    start = match.start()
    dash_or_minus = match["sign"] is None and text[end - 1].isalnum() and text[end] in "+-."
    if (
        dash_or_minus
        or reader.is_other_scale(match["scale"] or "")
        or introduced_as_other(text, start + 1)
        or sentence_continues(text, reading.end)
        or _is_one_aspect(text, match)
    ):
        return VerdictClaim(None, start, reading.end, final=False)
    final = fills_line and reading.end > last_line and text[start] == "\n" and not match["bullet"]
    return VerdictClaim(reading.verdict, start, reading.end, final=final)


def _below_heading(
    text: str, match: re.Match[str], position: int, reader: ClaimReader
) -> VerdictClaim | None:
    """The "7/10" that begins the line below a heading, whatever remark follows it."""
    if "#" not in text[match.start() : match.start("label")]:
        return None
    reading = reader.read_at(text, position)
    if reading is None or not reading.scaled or introduced_as_other(text, match.start() + 1):
        return None
    return VerdictClaim(reading.verdict, match.start(), reading.end, final=False)


def _is_one_aspect(text: str, match: re.Match[str]) -> bool:
    """Whether "quality score" is one of several scores, such as beside a "safety score"."""
    lead = text[match.start() : match.start("label")]
    return "quality" in lead and _OTHER_ASPECT.search(text) is not None


def _gives_cause(text: str, reading: Reading) -> bool:
    """Whether a reason follows a word of a choice: "my verdict is no, since step 3 is wrong"."""
    return isinstance(reading.verdict, str) and _CAUSE.match(text, reading.end) is not None


def _last_line_start(text: str) -> int:
    """Where the last line that has a word on it begins."""
    return text.rfind("\n", 0, len(text.rstrip(_AFTER_LAST_WORD))) + 1


def _spelled(name: str) -> str:
    """A pattern of the spellings of `name`: ``tool_use``, ``Tool use``, ``tool-use``."""
    return r"[ _-]?".join(map(re.escape, name.lower().split("_"))) + r"(?!_?[^\W_])"
