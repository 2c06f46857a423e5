"""Verdicts by a rubric of the row: criteria with points that each row of the data brings along."""

from __future__ import annotations

import math
import re
from typing import Final, Literal, TypeAlias

import msgspec

from zerowait.config.checks import positive
from zerowait.config.group_verdict import GroupVerdict

RubricAggregate: TypeAlias = Literal["points", "weighted_mean", "all", "implicit"]
"""How the verdicts on a row's criteria become one reward; see `RowRubricVerdict`."""

CATEGORIES: Final = {"essential": 1.0, "important": 0.7, "optional": 0.3, "pitfall": -0.9}
"""Points of a criterion that names a category and no points (Rubrics as Rewards)."""

_OPTIONS: Final = ("aggregate", "clip", "tags", "categories")
_COLUMN: Final = re.compile(r"extra\.[A-Za-z_][A-Za-z0-9_.-]*")


class Batches(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``ask: {batch: k}``: k criteria in one call."""

    batch: int

    def __post_init__(self) -> None:
        positive("batch", self.batch)


class RowRubricVerdict(GroupVerdict, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of a verdict rule about a row's own rubric; None where the user gave none.

    The judge says of each criterion whether the response meets it, and never sees points. What it
    says becomes a reward by `aggregate`:

    - ``points``: the points of the criteria that are met, over all positive points.
    - ``weighted_mean``: the share of the points that went the right way: of a criterion with
      positive points when it is met, of one with negative points when it is not.
    - ``all``: 1 if every criterion went the right way, else 0.
    - ``implicit``: one verdict on the whole, with the criteria in view, mapped to [0, 1].

    Args:
        rubric: the column of the rubric, ``extra.NAME``.
        aggregate: ``points`` where nothing is given.
        clip: False lets a reward by ``points`` be below 0 or above 1.
        quorum: see `GroupVerdict`; here the share of a rubric's points whose criteria need a
            verdict, or the row abstains; without it all of them.
        tags: tags and categories whose share of met criteria is a metric.
        categories: points of a criterion that names a category and no points.
    """

    rubric: str | None = None
    aggregate: RubricAggregate | None = None
    clip: bool | None = None
    tags: list[str] | None = None
    categories: dict[str, float] | None = None

    @property
    def aggregation(self) -> RubricAggregate:
        """`aggregate`, with its default."""
        return self.aggregate or "points"

    @property
    def rubric_column(self) -> str:
        """The key of a sample's ``extra`` under which its rubric is."""
        return (self.rubric or "").removeprefix("extra.")

    def check_rubric(self) -> None:
        """Raise a ValueError for an option of a rubric that does not fit, or is out of range."""
        self.check_comparison("" if self.rubric is None else "rubric: extra.NAME")
        if self.rubric is None:
            given = next((name for name in _OPTIONS if getattr(self, name) is not None), None)
            if given is not None:
                raise ValueError(f"{given} goes with rubric: extra.NAME only")
            return
        if not _COLUMN.fullmatch(self.rubric):
            raise ValueError(
                f"rubric is the column of each row's own criteria, such as extra.rubric, not "
                f"{self.rubric!r}; the prompt's file is the judge's own 'rubric'"
            )
        if self.clip is not None and self.aggregation != "points":
            raise ValueError(f"clip goes with aggregate: points, not with {self.aggregation}")
        if self.aggregation == "implicit" and self.quorum is not None:
            raise ValueError("quorum is for verdicts on each criterion; implicit asks for one")
        for name, points in (self.categories or {}).items():
            if not math.isfinite(points):
                raise ValueError(f"categories must have finite points, and {name} has {points}")
