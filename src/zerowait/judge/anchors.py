"""Anchors: samples with a reference verdict, by which a judge's drift is measured.

A file of anchors has one JSON object a line: the fields of a sample, and ``verdict``, its reference
verdict: a number in the judge's range, or a word of its choice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from zerowait.config import Judge
from zerowait.errors import ConfigError, DataError, did_you_mean
from zerowait.events import Drift
from zerowait.judge.monitor import seen_by, truth_of
from zerowait.judge.parsing.verdict import parse, to_unit
from zerowait.judge.procedure import Procedure
from zerowait.judge.request import request_for
from zerowait.judge.row_rubric import row_rubric
from zerowait.rank_statistics import rank_correlation
from zerowait.types import Abstain, Outcome, Sample, Score

_MIDDLE = 0.5


def drift_between(before: Sequence[float | None], now: Sequence[float | None]) -> Drift | None:
    """The drift from `before` to `now`, over the anchors with a verdict in both; None without any.

    Args:
        before: earlier verdicts as shares of the range, in [0, 1]; None for an abstention.
        now: the verdicts of the same anchors today.

    >>> drift_between([0.0, 0.5, 1.0], [0.0, 0.75, None])
    Drift(anchors=2, mean_abs=0.125, rank_correlation=1.0, flips=1)
    """
    pairs = [(a, b) for a, b in zip(before, now, strict=True) if a is not None and b is not None]
    if not pairs:
        return None
    return Drift(
        anchors=len(pairs),
        mean_abs=math.fsum(abs(a - b) for a, b in pairs) / len(pairs),
        rank_correlation=rank_correlation([a for a, _ in pairs], [b for _, b in pairs]),
        flips=sum((a > _MIDDLE) != (b > _MIDDLE) for a, b in pairs),
    )


_MOST = 500
_VERDICT = "verdict"
_FIELDS = (*Sample.__struct_fields__, _VERDICT)


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    """A sample and its reference verdict, as a share of the verdict's range in [0, 1]."""

    sample: Sample
    reference: float


def load_anchors(path: Path, judge: Judge, procedure: Procedure) -> list[Anchor]:
    """The anchors in the JSONL file `path`, each with all that the judge's rubric shows.

    Args:
        path: of the file.
        judge: its settings.
        procedure: its requests.

    Raises:
        ConfigError: names the file, the line and what is wrong there; or there are none, or more
            than 500, which would cost more than they tell.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"the anchors {path} cannot be read: {reason}") from None
    anchors = [
        _anchor(f"{path}:{number}", line, judge, procedure)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not 1 <= len(anchors) <= _MOST:
        raise ConfigError(f"{path} has {len(anchors)} anchors; give 1 to {_MOST}")
    return anchors


def _anchor(where: str, line: str, judge: Judge, procedure: Procedure) -> Anchor:
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        _fail(where, f"is no JSON: {error}")
    if not isinstance(row, dict):
        _fail(where, "is no JSON object")
    for key in row:
        if key not in _FIELDS:
            _fail(where, f"an anchor has no field {key!r}{did_you_mean(key, _FIELDS)}")
    if _VERDICT not in row:
        _fail(where, "an anchor needs its reference 'verdict'")
    reference = _reference(where, row.pop(_VERDICT), judge, procedure)
    try:
        sample = msgspec.convert(row, Sample)
    except msgspec.ValidationError as error:
        _fail(where, str(error))
    _check_askable(where, sample, judge, procedure)
    return Anchor(sample=sample, reference=reference)


def share_of(outcome: Outcome, bounds: tuple[float, float]) -> float | None:
    """A verdict as a share of its range in [0, 1], or None for an outcome that is none."""
    return to_unit(outcome.value, bounds) if isinstance(outcome, Score) else None


def _reference(where: str, verdict: Any, judge: Judge, procedure: Procedure) -> float:
    """The reference as a share of the range; it may lie between two verdicts, as a mean does."""
    if judge.verdict.choice is not None and isinstance(verdict, str):
        outcome = parse(verdict, judge.verdict)
        if isinstance(outcome, Score):
            return outcome.value
        _fail(where, f"its verdict is none of this judge's: {outcome.detail}")
    low, high = procedure.bounds or (0.0, 1.0)
    is_number = isinstance(verdict, int | float) and not isinstance(verdict, bool)
    if not (is_number and low <= verdict <= high):
        _fail(where, f"its verdict is {verdict!r}, expected a number from {low:g} to {high:g}")
    return to_unit(float(verdict), (low, high))


def _check_askable(where: str, sample: Sample, judge: Judge, procedure: Procedure) -> None:
    monitor = procedure.monitor
    if monitor is not None:
        truth = truth_of(sample, monitor)
        if isinstance(truth, Abstain):
            _fail(where, truth.detail)
        sample = seen_by(sample, monitor)
    if procedure.of_row:
        try:
            row_rubric(sample, judge.verdict)
        except DataError as error:
            _fail(where, str(error))
    for question in procedure.questions:
        request = request_for(sample, judge, question.rubric, form=question.form)
        if isinstance(request, Abstain):
            _fail(where, request.detail)


def _fail(where: str, problem: str) -> NoReturn:
    raise ConfigError(f"{where}: {problem}")
