"""Agreement between the judges and the people who rated samples in the dashboard."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from zerowait.errors import DataError

IN_FORCE = (
    "o.up IS NOT NULL AND NOT EXISTS (SELECT 1 FROM opinions p WHERE p.uid = o.uid "
    "AND coalesce(p.who, '') = coalesce(o.who, '') AND p.rowid > o.rowid)"
)
"""SQL condition on ``opinions o``: it is the last one of its person on its sample, and not taken
back."""


class Confusion(msgspec.Struct, frozen=True, kw_only=True):
    """How often people and scores said good or bad, of the samples that have both.

    >>> table = Confusion(both_good=40, only_person=10, only_score=20, both_bad=30)
    >>> round(table.accuracy, 3), round(table.kappa, 3)
    (0.7, 0.4)
    """

    both_good: int = 0
    only_person: int = 0
    only_score: int = 0
    both_bad: int = 0

    @property
    def samples(self) -> int:
        """The number of opinions compared."""
        return self.both_good + self.only_person + self.only_score + self.both_bad

    @property
    def accuracy(self) -> float | None:
        """The share of opinions that the score agrees with; None without any."""
        return (self.both_good + self.both_bad) / self.samples if self.samples else None

    @property
    def kappa(self) -> float | None:
        """Agreement beyond chance, in [-1, 1]; None where one answer is all that both ever gave.

        Reference:
            Cohen 1960, A coefficient of agreement for nominal scales.
        """
        n = self.samples
        if not n:
            return None
        person = self.both_good + self.only_person
        score = self.both_good + self.only_score
        by_chance = person * score + (n - person) * (n - score)
        if by_chance == n * n:
            return None
        return (n * (self.both_good + self.both_bad) - by_chance) / (n * n - by_chance)


def agreement(
    index: sqlite3.Connection, *, component: str | None = None, threshold: float | None = None
) -> dict[str, Any]:
    """How far a score agrees with the people who rated samples.

    An abstention is no score: its samples are counted in ``without_score`` and nowhere else.

    Args:
        index: of the run.
        component: whose score; None for the reward.
        threshold: a score of at least this much means good; None takes the middle between the
            lowest and the highest score of the run.

    Returns:
        ``threshold``, the ``lowest`` and ``highest`` score, ``accuracy``, ``kappa``, the four
        counts of `Confusion` in ``confusion``, ``without_score``, and ``disagreements``: the rows
        of up to 50 samples on which they differ.
    """
    lowest, highest = _range(index, component)
    if threshold is None and lowest is not None:
        threshold = (lowest + highest) / 2
    counts = dict.fromkeys(Confusion.__struct_fields__, 0)
    without, disagreements = 0, []
    for row, up, value in _rated_values(index, component):
        if value is None or threshold is None:
            without += 1
            continue
        good = value >= threshold
        match bool(up), good:
            case True, True:
                counts["both_good"] += 1
            case True, False:
                counts["only_person"] += 1
            case False, True:
                counts["only_score"] += 1
            case _:
                counts["both_bad"] += 1
        if bool(up) != good:
            disagreements.append({"row": row, "up": bool(up), "value": value})
    table = Confusion(**counts)
    return {
        "component": component,
        "threshold": threshold,
        "lowest": lowest,
        "highest": highest,
        "accuracy": table.accuracy,
        "kappa": table.kappa,
        "confusion": table,
        "without_score": without,
        "disagreements": disagreements[:50],
    }


def _range(index: sqlite3.Connection, component: str | None) -> tuple[Any, Any]:
    """The lowest and highest reward or score, each by one look into an index; None without any."""
    if component is None:
        column, source, given = "value", "rewards WHERE value IS NOT NULL", ()
    else:
        column, given = "value", (component,)
        source = "components WHERE component = ? AND value IS NOT NULL"
    found = [
        index.execute(f"SELECT {end}({column}) FROM {source}", given).fetchone()[0]
        for end in ("min", "max")
    ]
    return found[0], found[1]


def _rated_values(
    index: sqlite3.Connection, component: str | None
) -> list[tuple[int, int, float | None]]:
    """Row, opinion and score of each opinion in force."""
    score, given = "r.value", ()
    if component is not None:
        score = "(SELECT value FROM components c WHERE c.row = r.row AND c.component = ?)"
        given = (component,)  # type: ignore[assignment]
    return [
        tuple(each)
        for each in index.execute(
            f"SELECT r.row, o.up, {score} FROM opinions o JOIN rewards r ON r.uid = o.uid "
            f"WHERE r.current = 1 AND {IN_FORCE} ORDER BY o.rowid",
            given,
        )
    ]


class AnchorsFile(msgspec.Struct, frozen=True, kw_only=True):
    """Lines for ``judges.NAME.anchors``.

    Args:
        lines: the file, one anchor a line.
        anchors: how many.
        left_out: rated samples that are not in it, because their texts were not kept, or people
            differ about them, or there are more than 500.
    """

    lines: bytes
    anchors: int
    left_out: int


def anchors_file(index: sqlite3.Connection, judge: str, *, up: float, down: float) -> AnchorsFile:
    """The rated samples as anchors of a judge.

    Args:
        index: of the run.
        judge: samples that this judge judged are taken.
        up: the reference verdict of a sample with a thumb up, in the judge's range.
        down: that of one with a thumb down.

    Raises:
        DataError: no sample that this judge judged is rated.
    """
    raise DataError("not yet")
