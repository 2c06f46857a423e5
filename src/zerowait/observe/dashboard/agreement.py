"""Agreement between the judges and the people who rated samples in the dashboard."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from zerowait.errors import DataError
from zerowait.record import PICTURES

_MOST_ANCHORS: Final = 500  # of a judge's file
_encode = msgspec.json.encode


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


def human_agreement(
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
    without = 0
    disagreements: list[dict[str, Any]] = []
    for row, up, value in _rated_values(index, component):
        if value is None or threshold is None:
            without += 1
            continue
        good = value >= threshold
        match up, good:
            case True, True:
                counts["both_good"] += 1
            case True, False:
                counts["only_person"] += 1
            case False, True:
                counts["only_score"] += 1
            case _:
                counts["both_bad"] += 1
        if up != good:
            disagreements.append({"row": row, "up": up, "value": value})
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
        source = "rewards WHERE value IS NOT NULL"
    else:
        source = "components WHERE component = ? AND value IS NOT NULL"
    given = () if component is None else (component,)
    found = [
        index.execute(f"SELECT {end}(value) FROM {source}", given).fetchone()[0]
        for end in ("min", "max")
    ]
    return found[0], found[1]


def _rated_values(
    index: sqlite3.Connection, component: str | None
) -> Iterator[tuple[int, bool, float | None]]:
    """Row, opinion and score of each opinion."""
    score = "r.value"
    if component is not None:
        score = "(SELECT value FROM components c WHERE c.row = r.row AND c.component = ?)"
    found = index.execute(
        f"SELECT r.row, o.up, {score} FROM opinions o JOIN rewards r USING (row) "
        "WHERE r.current = 1 ORDER BY o.at",
        () if component is None else (component,),
    )
    return ((row, bool(up), value) for row, up, value in found)


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
        judge: samples that this judge judged are taken; where no judgements were recorded, all.
        up: the reference verdict of a sample with a thumb up, in the judge's range.
        down: that of one with a thumb down.

    Raises:
        DataError: no sample that this judge judged is rated, or no text of one was kept.
    """
    rated = _rated_samples(index, judge)
    if not rated:
        raise DataError(f"no sample that {judge} judged is rated yet: give thumbs first")
    lines: list[bytes] = []
    for row, thumbs in rated.items():
        sample = _sample(index, row)
        if len(set(thumbs)) == 1 and sample is not None and len(lines) < _MOST_ANCHORS:
            lines.append(_encode({**sample, "verdict": up if thumbs[0] else down}) + b"\n")
    if not lines:
        raise DataError(
            "of no rated sample can an anchor be made: their texts were not kept, or people differ"
        )
    return AnchorsFile(lines=b"".join(lines), anchors=len(lines), left_out=len(rated) - len(lines))


def given_verdicts(index: sqlite3.Connection, judge: str) -> dict[str, float | None]:
    """The ``lowest`` and ``highest`` verdict that a judge gave; None without any."""
    ends = {"lowest": "min", "highest": "max"}
    query = "SELECT {}(value) FROM judgements WHERE judge = ?"
    return {
        name: index.execute(query.format(end), (judge,)).fetchone()[0] for name, end in ends.items()
    }


def _rated_samples(index: sqlite3.Connection, judge: str) -> dict[int, list[bool]]:
    """The thumbs that each rated sample of a judge has, by row."""
    judged = (
        "EXISTS (SELECT 1 FROM judgement_rows b JOIN judgements j USING (judgement) "
        "WHERE b.uid = r.uid AND j.judge = ?)"
    )
    any_judgement = index.execute("SELECT 1 FROM judgements LIMIT 1").fetchone()
    found = index.execute(
        "SELECT r.row, o.up FROM opinions o JOIN rewards r USING (row) "
        f"WHERE r.current = 1 AND {judged if any_judgement else '? IS NOT NULL'} ORDER BY r.row",
        (judge,),
    )
    rated: dict[int, list[bool]] = {}
    for row, thumb in found:
        rated.setdefault(row, []).append(bool(thumb))
    return rated


def _sample(index: sqlite3.Connection, row: int) -> dict[str, Any] | None:
    """The fields of a `zerowait.Sample` that its anchor needs; None where its texts are not kept.

    Pictures are files beside the record, which an anchors file elsewhere would not find.
    """
    found = index.execute("SELECT * FROM rewards WHERE row = ?", (row,)).fetchone()
    if found["prompt"] is None or found["response"] is None:
        return None
    messages = json.loads(found["messages"]) if found["messages"] else {}
    if f'"path":"{PICTURES}/' in (found["messages"] or ""):
        return None
    sample = {
        "prompt": messages.get("prompt") or found["prompt"],
        "response": found["response"],
        "response_messages": messages.get("response"),
        "ground_truth": json.loads(found["ground_truth"]) if found["ground_truth"] else None,
        "data_source": found["data_source"] or None,
        "response_tokens": found["response_tokens"],
        "extra": json.loads(found["extra"]) if found["extra"] else None,
        "id": found["id"],
    }
    return {name: value for name, value in sample.items() if value is not None}
