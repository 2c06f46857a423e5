"""Rubrics of the row: read from the data, asked about criterion by criterion, and added up.

A row's rubric is a list of criteria in one of the published forms: HealthBench's ``criterion``,
``points`` and ``tags`` (arXiv:2505.08775), Rubrics as Rewards' ``title``, ``description`` and
``weight`` (arXiv:2507.17746), or plain texts of one point each. Data frames and data sets change
the types: the list may be JSON text, an array, or structs with a null for each key that another
row has. The judge is shown the texts alone; points never reach it, so that a change of points asks
nothing anew.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from zerowait.config.row_rubric import CATEGORIES, Batches
from zerowait.config.schema import Judge, VerdictRule
from zerowait.control_tokens import break_control_tokens
from zerowait.errors import DataError, did_you_mean
from zerowait.judge.conversation import as_builtins
from zerowait.judge.fence import INVISIBLE
from zerowait.judge.parsing.form import SingleVerdict
from zerowait.judge.parsing.row_criteria import (
    MET,
    RowCriteria,
    StructuredRowCriteria,
    call_names,
    measure_of,
)
from zerowait.judge.parsing.structured import StructuredVerdict
from zerowait.judge.parsing.verdict import one_line, to_unit
from zerowait.judge.pooling import dominating
from zerowait.judge.procedure import JudgeQuestion, question_by
from zerowait.judge.rubric import Rubric
from zerowait.types import Abstain, FailureKind, Outcome, Sample, Score

_TEXTS: Final = ("criterion", "description", "criteria", "text", "question", "requirement")
_POINTS: Final = ("points", "weight", "score")
_TAGS: Final = ("tags", "tag", "category", "type")
_LISTS: Final = ("rubric", "rubrics", "criteria", "items")
_KNOWN: Final = (*_TEXTS, *_POINTS, *_TAGS, "title", "name")
_MOST_POINTS: Final = 1e100  # sums and shares of these stay finite, and of their inverse too
_LABEL_END: Final = re.compile(r":|\s[-\u2013\u2014]\s")
WHOLE_VERDICT: Final = VerdictRule(integer=(1, 10))
"""The verdict of ``aggregate: implicit``."""


class RowCriterion(msgspec.Struct, frozen=True):
    """One criterion of a row.

    Args:
        text: what the judge reads.
        points: what it adds to the reward where it is met; negative ones subtract.
        tags: of the criterion, its category among them.
    """

    text: str
    points: float = 1.0
    tags: tuple[str, ...] = ()


def row_rubric(sample: Sample, rule: VerdictRule) -> tuple[RowCriterion, ...]:
    """The criteria of a sample, in order.

    Raises:
        DataError: it has none, or one that is malformed; names the column and the criterion.
    """
    where, column = f"{rule.rubric}", rule.rubric_column
    if column not in sample.extra:
        hint = did_you_mean(column, [str(name) for name in sample.extra])
        raise DataError(f"{where}: this row has no such column{hint}")
    categories = CATEGORIES | {n.casefold(): p for n, p in (rule.categories or {}).items()}
    criteria = tuple(
        _criterion(item, f"{where}[{number}]", categories)
        for number, item in enumerate(_items(sample.extra[column], where))
    )
    positive = math.fsum(max(criterion.points, 0.0) for criterion in criteria)
    if rule.aggregation == "points" and not positive:
        raise DataError(f"{where}: no criterion has positive points, so no reward can be earned")
    if rule.aggregation == "weighted_mean" and not any(c.points for c in criteria):
        raise DataError(f"{where}: every criterion has 0 points")
    return criteria


def _items(value: Any, where: str) -> list[Any]:
    """The list in a column, of whatever type a data set makes of it."""
    try:
        plain = as_builtins(value)
    except (TypeError, ValueError, RecursionError) as error:
        name = type(value).__name__
        raise DataError(f"{where}: {name} is no list of criteria: {error}") from None
    plain = _decoded(plain)
    if isinstance(plain, dict):
        plain = _rows(plain, where) or plain
    if isinstance(plain, dict):
        lists = [plain[name] for name in _LISTS if isinstance(_decoded(plain.get(name)), list)]
        plain = _decoded(lists[0]) if len(lists) == 1 else plain
    if not isinstance(plain, list | tuple):
        shown = "nothing" if plain is None else f"{type(plain).__name__} {str(plain)[:40]!r}"
        raise DataError(
            f"{where}: must be a list of criteria such as "
            f'[{{"criterion": "...", "points": 5}}], or the same as JSON, not {shown}'
        )
    if not plain:
        raise DataError(f"{where}: has no criterion")
    return list(plain)


def _rows(columns: Mapping[str, Any], where: str) -> list[Any] | None:
    """The criteria of a mapping of lists, which some readers make of a list of mappings."""
    texts = next((name for name in (*_TEXTS, *_LISTS) if _has_texts(columns.get(name))), None)
    names = {name: name if name in _KNOWN else name.removesuffix("s") for name in columns}
    lists = {
        known: columns[name]
        for name, known in names.items()
        if name != texts and known in _KNOWN and isinstance(columns[name], list)
    }
    if texts is None or not lists:
        return None
    lists[texts if texts in _TEXTS else "criterion"] = columns[texts]
    if len({len(each) for each in lists.values()}) > 1:
        shown = ", ".join(f"{len(each)} of {name}" for name, each in lists.items())
        raise DataError(f"{where}: its lists do not belong together: {shown}")
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def _has_texts(value: Any) -> bool:
    """Whether `value` is a list of texts, or of missing ones; a text that is JSON is none."""
    return (
        isinstance(value, list)
        and any(map(_is_text, value))
        and all(each is None or (_is_text(each) and _decoded(each) is each) for each in value)
    )


def _decoded(value: Any) -> Any:
    """`value`; a list or mapping that is stored as JSON text is decoded."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        return json.loads(value)  # reads NaN, which data frames write for a missing number
    except (ValueError, RecursionError):
        return value


def _criterion(item: Any, where: str, categories: Mapping[str, float]) -> RowCriterion:
    item = _decoded(item)
    if isinstance(item, str):
        item = {"criterion": item}
    if not isinstance(item, dict):
        raise DataError(
            f"{where}: must be a text or a mapping such as "
            f'{{"criterion": "...", "points": 5}}, not {type(item).__name__} {str(item)[:40]!r}'
        )
    given = {name: value for name, value in item.items() if not _is_missing(value)}
    text = next((given[name] for name in _TEXTS if name in given), None)
    if not isinstance(text, str):
        names = [name for name in given if name not in _KNOWN]
        hint = next((h for n in names if (h := did_you_mean(n, _TEXTS))), "")
        has = ", ".join(map(str, given)) or "nothing"
        raise DataError(f"{where}: has no text under {', '.join(_TEXTS[:3])}; it has {has}{hint}")
    if not any(map(str.isalnum, text)):
        raise DataError(f"{where}: its text is {text!r:.40}, which says nothing")
    tags = _tags(given, where)
    category = next((c for tag in tags if (c := _category(tag, categories))), None)
    if category is None and (category := _category(text, categories)) is not None:
        tags = (*tags, category)
    points = next(((name, given[name]) for name in _POINTS if name in given), None)
    if points is not None:
        return RowCriterion(text, _number(points[1], f"{where}.{points[0]}"), tags)
    _check_unknown(given, where)
    return RowCriterion(text, 1.0 if category is None else categories[category], tags)


def _check_unknown(given: Mapping[str, Any], where: str) -> None:
    """Raise a DataError for a number that is meant to be the points, under a mistyped name."""
    for name, value in given.items():
        near = get_close_matches(name.casefold(), [*_POINTS, "weights"], n=1, cutoff=0.8)
        if name not in _KNOWN and near and isinstance(value, int | float):
            nearest = near[0].removesuffix("s") if near[0] == "weights" else near[0]
            raise DataError(f"{where}: has no points but {name!r}; did you mean {nearest!r}?")


def _is_missing(value: Any) -> bool:
    """Whether a struct only has this key because another row has it."""
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _tags(given: Mapping[str, Any], where: str) -> tuple[str, ...]:
    found: list[str] = []
    for name in _TAGS:
        value = _decoded(given.get(name, ()))
        several = [value] if isinstance(value, str) else value
        if isinstance(value, dict):  # RubricHub's {"verifier": "llm", "function": null}
            several = [f"{key}:{each}" for key, each in value.items() if each and _is_text(each)]
        if isinstance(several, list):
            several = [tag for tag in several if not _is_missing(tag)]
        if not isinstance(several, list | tuple) or not all(isinstance(t, str) for t in several):
            raise DataError(f"{where}.{name}: must be a text or a list of texts, not {value!r:.40}")
        found.extend(several)
    return tuple(dict.fromkeys(found))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _category(text: str, categories: Mapping[str, float]) -> str | None:
    """The category that a tag is, or that a text begins with: "Essential Criteria: Names ..."."""
    label = _LABEL_END.split(text.casefold(), maxsplit=1)[0].strip(" \t\n*_[]()")
    word = label.removesuffix("criteria").removesuffix("criterion").strip()
    return word if word in categories else None


def _number(value: Any, where: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise DataError(f"{where}: must be a finite number, not {value!r:.40}")
    if number and not 1 / _MOST_POINTS <= abs(number) <= _MOST_POINTS:
        raise DataError(f"{where}: is beyond what points may be: {value!r:.40}")
    return number


class RowCall(msgspec.Struct, frozen=True):
    """One call about some criteria of a row.

    Args:
        question: what the judge is asked.
        criteria: the indexes of the criteria, in the order of their names in the call.
    """

    question: JudgeQuestion
    criteria: tuple[int, ...]


def row_calls(judge: Judge, rubric: Rubric, criteria: Sequence[RowCriterion]) -> list[RowCall]:
    """The calls that ask `judge` about a row's criteria.

    Args:
        judge: its settings: ``ask`` says how many criteria one call is about.
        rubric: its prompt, whose ``{{criteria}}`` stands behind the sample.
        criteria: of the row.
    """
    size = len(criteria)
    if judge.ask == "apart":
        size = 1
    elif isinstance(judge.ask, Batches):
        size = judge.ask.batch
    return [
        _call(judge, rubric, criteria, range(start, min(start + size, len(criteria))))
        for start in range(0, len(criteria), size)
    ]


def _call(
    judge: Judge, rubric: Rubric, criteria: Sequence[RowCriterion], part: Sequence[int]
) -> RowCall:
    shown = rubric.listing(_listed([criteria[index] for index in part]))
    lines = RowCriteria(len(part), partial=judge.verdict.quorum is not None)
    enforced = StructuredRowCriteria(lines, rubric.reason_first)
    question = question_by(judge, shown, enforced=enforced, prompted=lines)
    return RowCall(question, tuple(part))


def whole_question(judge: Judge, rubric: Rubric, criteria: Sequence[RowCriterion]) -> JudgeQuestion:
    """The question after one verdict on the whole, with the criteria in view."""
    enforced = StructuredVerdict(WHOLE_VERDICT, reason_first=rubric.reason_first)
    shown = rubric.listing(_listed(criteria))
    return question_by(judge, shown, enforced=enforced, prompted=SingleVerdict(WHOLE_VERDICT))


def _listed(criteria: Sequence[RowCriterion]) -> str:
    """The criteria as the judge reads them, a line each, without what would end its message."""
    names = call_names(len(criteria))
    texts = (" ".join(break_control_tokens(c.text, by=INVISIBLE).split()) for c in criteria)
    return "\n".join(f"{name}: {text}" for name, text in zip(names, texts, strict=True))


def whole_outcome(outcome: Outcome) -> Outcome:
    """The verdict on the whole, mapped to [0, 1]."""
    if not isinstance(outcome, Score):
        return outcome
    return msgspec.structs.replace(outcome, value=to_unit(outcome.value, (1.0, 10.0)))


def rubric_outcome(
    criteria: Sequence[RowCriterion],
    outcomes: Sequence[tuple[RowCall, Outcome]],
    rule: VerdictRule,
) -> Score | Abstain:
    """The reward by the verdicts on a row's criteria; see `RowRubricVerdict` for how it is made.

    ``detail["met"]`` says of each criterion, in the row's order, whether it is met; None is no
    verdict. ``detail["measured"]`` has the share that is met, of all and by tag.

    Args:
        criteria: of the row.
        outcomes: of its calls.
        rule: says how the verdicts are added up, and how many of them may be missing.
    """
    met: list[bool | None] = [None] * len(criteria)
    failures: list[Abstain] = []
    for call, outcome in outcomes:
        if isinstance(outcome, Abstain):
            failures.append(outcome)
        elif isinstance(outcome, Score):
            for index, said in zip(call.criteria, outcome.detail[MET].values(), strict=True):
                met[index] = said
    if failures and len(outcomes) == 1:
        return failures[0]
    judged = [(c, said) for c, said in zip(criteria, met, strict=True) if said is not None]
    if (missing := _missing(criteria, judged, failures, rule)) is not None:
        return missing
    value = _reward(judged, rule)
    if value is None:
        why = "no criterion with positive points has a verdict"
        return Abstain(FailureKind.UNPARSEABLE, f"{len(judged)} of {len(met)} were judged; {why}")
    why = next((o.why for _, o in outcomes if isinstance(o, Score) and o.why), "")
    return Score(
        value, one_line(why), {"verdict": value, MET: met, "measured": _measured(judged, rule)}
    )


def _missing(
    criteria: Sequence[RowCriterion],
    judged: Sequence[tuple[RowCriterion, bool]],
    failures: Sequence[Abstain],
    rule: VerdictRule,
) -> Abstain | None:
    """The abstention for too many criteria without a verdict; None where there are enough."""
    if len(judged) == len(criteria):
        return None
    total = math.fsum(abs(criterion.points) for criterion in criteria)
    share = math.fsum(abs(criterion.points) for criterion, _ in judged) / total if total else 0.0
    if rule.quorum is not None and judged and share >= rule.quorum:
        return None
    kind = dominating(failures) if failures else FailureKind.UNPARSEABLE
    first = next((f": {failure.detail}" for failure in failures if failure.kind is kind), "")
    needed = (
        "" if rule.quorum is None else f" ({share:.0%} of the points, {rule.quorum:.0%} needed)"
    )
    return Abstain(kind, f"{len(judged)} of {len(criteria)} criteria were judged{needed}{first}")


def _reward(judged: Sequence[tuple[RowCriterion, bool]], rule: VerdictRule) -> float | None:
    """The reward by the criteria that have a verdict; None where there is nothing to earn."""
    if rule.aggregation == "all":
        return float(all(met == (criterion.points >= 0) for criterion, met in judged))
    if rule.aggregation == "weighted_mean":
        total = math.fsum(abs(criterion.points) for criterion, _ in judged)
        good = math.fsum(abs(c.points) for c, met in judged if met == (c.points > 0))
        return good / total if total else None
    total = math.fsum(max(criterion.points, 0.0) for criterion, _ in judged)
    if not total:
        return None
    earned = math.fsum(criterion.points for criterion, met in judged if met) / total
    return earned if rule.clip is False else min(max(earned, 0.0), 1.0)


def _measured(judged: Sequence[tuple[RowCriterion, bool]], rule: VerdictRule) -> dict[str, float]:
    """The share of the judged criteria that are met: of all, and of those with each tag."""
    measured = {MET: sum(met for _, met in judged) / len(judged)}
    for tag in rule.tags or ():
        tagged = [met for criterion, met in judged if tag in criterion.tags]
        if tagged:
            measured[measure_of(tag)] = sum(tagged) / len(tagged)
    return measured
