"""Whether a response meets each criterion of a row: how a judge says so, and how that is read.

In one call the criteria are called C1, C2 and so on. The judge says ``true`` or ``false`` of each
in a JSON object, or ``yes`` or ``no`` on a line of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from zerowait.config.schema import VerdictRule
from zerowait.judge.parsing.answer import visible_answer
from zerowait.judge.parsing.criteria import CriteriaForm
from zerowait.judge.parsing.loose_json import decode_whole, json_object
from zerowait.judge.parsing.readers import criterion_reader
from zerowait.judge.parsing.structured import closed_object, json_schema_format
from zerowait.judge.parsing.verdict import is_retracted, one_line
from zerowait.judge.pooling import dominating
from zerowait.judge.rubric import Criterion
from zerowait.types import Abstain, FailureKind, Outcome, Score

MET: Final = "met"
"""Key in a score's detail: from each criterion's name to true, false, or None for no verdict."""


def measure_of(tag: str) -> str:
    """The name of the metric for the criteria with `tag`.

    >>> measure_of("axis:accuracy")
    'met/axis:accuracy'
    """
    return f"{MET}/{tag}"


_YES_NO: Final = VerdictRule(choice=["yes", "no"])
_NAME: Final = re.compile(r"C[0-9]+")
_LINE: Final = re.compile(r"^[ \t*_#>`-]*(C[0-9]+)[*_`]*[ \t]*:", re.MULTILINE)
_WORD: Final = re.compile(
    r"^(?P<name>[ \t*_#>|`-]*C[0-9]+[*_`]*[ \t]*[:=|][ \t*_`]*)"
    r"(?P<word>true|false|met|not[ ]met|unmet|\u2705|\u2714|\u274c|\u2718)"
    r"(?=[ \t*_`]*(?:[.,;:|(\n-]|\Z))",
    re.MULTILINE | re.IGNORECASE,
)
_SAID: Final[dict[Any, bool]] = {
    **dict.fromkeys((True, "yes", "true", "met"), True),
    **dict.fromkeys((False, "no", "false", "not met", "unmet"), False),
}


@lru_cache(maxsize=256)
def call_names(count: int) -> tuple[str, ...]:
    """What the criteria of one call are called.

    >>> call_names(3)
    ('C1', 'C2', 'C3')
    """
    return tuple(f"C{number}" for number in range(1, count + 1))


class RowCriteria(msgspec.Struct, frozen=True):
    """Yes or no to each criterion, a line each.

    Args:
        count: how many criteria are asked about.
        partial: whether a reply counts that leaves some of them out.
    """

    count: int
    partial: bool = False

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest score, which is the share of criteria that are met."""
        return 0.0, 1.0

    @property
    def response_format(self) -> None:
        """None: the prompt says it."""
        return None

    @property
    def enforced(self) -> str:
        """Empty: the prompt says it."""
        return ""

    def asked(self, *, reason_first: bool) -> str:
        """The instruction in which form to answer.

        >>> print(RowCriteria(2).asked(reason_first=False))
        Reply with exactly one line for each criterion, in this order, and nothing else:
        C1: WORD
        C2: WORD
        where each WORD is one of yes, no.
        yes: the response meets the criterion; no: it does not.
        """
        lines = self._lines.asked(reason_first=reason_first)
        return f"{lines}\nyes: the response meets the criterion; no: it does not."

    def read(self, text: str) -> Score | Abstain:
        """Which criteria are met; abstains for one without a verdict, or for all of them."""
        written = _object(text)
        if written is not None and written.keys() & set(call_names(self.count)):
            return _read_object(written, self)
        answer = visible_answer(text)
        if (other := _other(_LINE.findall(answer or ""), call_names(self.count))) is not None:
            return other
        lines = text if answer is None else _WORD.sub(_yes_or_no, answer)
        found = self._lines.outcomes(lines)
        if isinstance(found, Abstain):
            return found
        outcomes, why = found
        met = {
            name: bool(outcome.value) if isinstance(outcome, Score) else None
            for name, outcome in outcomes.items()
        }
        return met_score(met, why, partial=self.partial, outcomes=outcomes)

    @property
    def _lines(self) -> CriteriaForm:
        return _lines_of(self.count)


def _yes_or_no(line: re.Match[str]) -> str:
    """A line that says true or false of a criterion, or met or not met, in the words asked for."""
    met = line["word"].lower() in ("true", "met", "\u2705", "\u2714")
    return f"{line['name']}{'yes' if met else 'no'}"


@lru_cache(maxsize=256)
def _lines_of(count: int) -> CriteriaForm:
    return CriteriaForm(_YES_NO, tuple(Criterion(name, 1.0) for name in call_names(count)))


def _other(named: Iterable[str], asked: Sequence[str]) -> Abstain | None:
    """The abstention for a criterion that was not asked about: the numbers may be shifted."""
    other = next((name for name in named if _NAME.fullmatch(name) and name not in asked), None)
    if other is None:
        return None
    span = asked[0] if len(asked) == 1 else f"{asked[0]} to {asked[-1]}"
    problem = f"the reply has a verdict on {other}, and was asked about {span}"
    return Abstain(FailureKind.UNPARSEABLE, problem)


def met_score(
    met: dict[str, bool | None], why: str, *, partial: bool, outcomes: dict[str, Outcome]
) -> Score | Abstain:
    """The verdicts on several criteria as one Score; an Abstain where too many are missing.

    Args:
        met: by the criterion's name; None for no verdict.
        why: the judge's reasons.
        partial: whether one verdict is enough, or all of them are needed.
        outcomes: of those without a verdict, why there is none.
    """
    said = [each for each in met.values() if each is not None]
    if len(said) < (1 if partial else len(met)):
        missing = {name: o for name, o in outcomes.items() if isinstance(o, Abstain)}
        kind = dominating(missing.values())
        first = next(outcome for outcome in missing.values() if outcome.kind is kind)
        return Abstain(kind, f"{len(said)} of {len(met)} criteria were judged; {first.detail}")
    share = sum(said) / len(said)
    return Score(share, one_line(why), {"verdict": share, MET: met})


class StructuredRowCriteria(msgspec.Struct, frozen=True):
    """The same in one JSON object, each verdict behind its reason where reasons come first.

    Args:
        form: in the prompt's words; it reads what is no such object.
        reason_first: whether each verdict has its reason before it.
    """

    form: RowCriteria
    reason_first: bool

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest score."""
        return self.form.bounds

    @property
    def enforced(self) -> str:
        """A form of its own, whose objects are nested."""
        return "row criteria"

    @property
    def response_format(self) -> msgspec.Raw:
        """The schema of the object."""
        return _format(self.form.count, self.reason_first)

    def asked(self, *, reason_first: bool) -> str:
        """The instruction in which form to answer.

        >>> print(StructuredRowCriteria(RowCriteria(2), False).asked(reason_first=False))
        Reply with one JSON object with an entry for each criterion, C1 to C2, and nothing else:
        {"C1": true, "C2": false}
        where true says that the response meets the criterion, and false that it does not.
        """
        del reason_first
        last = call_names(self.form.count)[-1]
        if self.reason_first:
            entries = '"C1": {"reason": "...", "met": true}'
            second = ', "C2": {"reason": "...", "met": false}'
            where = '"reason" says why in one sentence, and '
        else:
            entries, second, where = '"C1": true', ', "C2": false', ""
        entries += second if self.form.count > 1 else ""
        entries += ", ..." if self.form.count > 2 else ""
        to = f", C1 to {last}," if self.form.count > 1 else ", C1,"
        return (
            f"Reply with one JSON object with an entry for each criterion{to} and nothing else:\n"
            f"{{{entries}}}\nwhere {where}true says that the response meets the criterion, and "
            "false that it does not."
        )

    def read(self, text: str) -> Score | Abstain:
        """Which criteria are met."""
        return self.form.read(text)


def _read_object(written: dict[str, Any], form: RowCriteria) -> Score | Abstain:
    """Which criteria are met, by the object that a reply holds."""
    names = call_names(form.count)
    if (other := _other(written, names)) is not None:
        return other
    met, reasons, outcomes = {}, [], dict[str, Outcome]()
    for name in names:
        met[name], reason = _said(written.get(name))
        reasons.append(f"{name}: {reason}" if reason else "")
        if met[name] is None:
            problem = f"{name}: the reply's object has no true or false for it"
            outcomes[name] = Abstain(FailureKind.UNPARSEABLE, problem)
    why = "; ".join(filter(None, reasons))
    return met_score(met, why, partial=form.partial, outcomes=outcomes)


@lru_cache(maxsize=256)
def _format(count: int, reason_first: bool) -> msgspec.Raw:  # noqa: FBT001 - cached by place
    verdict: dict[str, Any] = {"type": "boolean"}
    if reason_first:
        verdict = closed_object({"reason": {"type": "string"}, MET: verdict})
    return json_schema_format(closed_object(dict.fromkeys(call_names(count), verdict)), strict=True)


def _object(text: str) -> dict[str, Any] | None:
    """The reply's one object, alone or among other words; None without one."""
    try:
        return decode_whole(text)
    except ValueError:
        answer = visible_answer(text)
    except RecursionError:
        return None
    written = None if answer is None else json_object(answer)
    if written is None or answer is None:
        return None
    after = answer.rfind("}") + 1
    return None if is_retracted(answer, after, criterion_reader(_YES_NO, "C1")) else written


def _said(entry: Any) -> tuple[bool | None, str]:
    """What an entry says of its criterion, and its reason."""
    reason = ""
    if isinstance(entry, dict):
        said = entry.get("reason")
        reason = said if isinstance(said, str) else ""
        entry = entry.get(MET)
    if isinstance(entry, int) and entry in (0, 1):  # True and False are these, too
        return bool(entry), reason
    if isinstance(entry, str):
        return _SAID.get(entry.strip().lower()), reason
    return None, reason
