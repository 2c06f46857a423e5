"""The axis of a run's charts: its steps, or bins of its rows where no row has a step."""

from __future__ import annotations

import sqlite3
from typing import Final, Literal

import msgspec

MAX_POINTS: Final = 400
"""The most points of a chart by step; more steps than that share points."""
_ROW_BINS: Final = 50


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """What a point of a chart is.

    Args:
        kind: ``step``, or ``rows`` for bins of rows in the order of recording.
        width: how many steps or rows share a point, which is named by the first of them.
        origin: the first step, or row.
        split: whose rows the charts show: ``train``, or without it the largest one.
    """

    kind: Literal["step", "rows"]
    width: int
    origin: int
    split: str

    def of(self, column: str) -> str:
        """SQL of the point that a column of steps, or of rows' numbers, falls into."""
        if self.width == 1:
            return column
        return f"(({column} - {self.origin}) / {self.width} * {self.width} + {self.origin})"

    @property
    def column(self) -> str:
        """The column of ``rewards r`` that the points are made of."""
        return "r.step" if self.kind == "step" else "r.row"

    @property
    def sql(self) -> str:
        """SQL of the point of a row of ``rewards r``; NULL for a row without a step."""
        return self.of(self.column)

    def inside(self, point: int) -> str:
        """SQL condition: whether a row of ``rewards r`` is in this point."""
        return self.between(point, point + self.width)

    def between(self, first: int, end: int) -> str:
        """SQL condition: whether a row of ``rewards r`` is in the points from `first` to `end`.

        Args:
            first: the first point.
            end: the one behind the last.
        """
        return f"({self.column} >= {int(first)} AND {self.column} < {int(end)})"


def find_axis(connection: sqlite3.Connection) -> Axis:
    """The axis for a run's index."""
    splits = connection.execute(
        "SELECT split, SUM(rows) AS n, MIN(step) AS first, MAX(step) AS last FROM steps "
        "WHERE rows > 0 GROUP BY split ORDER BY split <> 'train', n DESC"
    ).fetchall()
    if not splits:
        return Axis(kind="rows", width=1, origin=1, split="train")
    main = splits[0]
    if main["first"] is None:
        first, last = connection.execute(
            "SELECT MIN(row), MAX(row) FROM rewards WHERE current = 1 AND split = ?",
            (main["split"],),
        ).fetchone()
        width = -(-(last - first + 1) // _ROW_BINS)
        return Axis(kind="rows", width=width, origin=first, split=main["split"])
    steps = main["last"] - main["first"] + 1
    (recorded,) = connection.execute(
        "SELECT COUNT(*) FROM steps WHERE split = ? AND step IS NOT NULL", (main["split"],)
    ).fetchone()
    # a run that records every hundredth step has few points, however far it goes
    width = 1 if 0 < recorded <= MAX_POINTS else -(-steps // MAX_POINTS)
    return Axis(kind="step", width=width, origin=main["first"], split=main["split"])
