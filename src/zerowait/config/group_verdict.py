"""Verdicts that compare responses with each other: pairs, or a ranking of the group."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

Against: TypeAlias = Literal["group", "reference"]
By: TypeAlias = Literal["wins", "bradley_terry"]
BY_TOKENS: Final = ("probability", "expectation")
"""How a verdict on one response is read from the probabilities of its tokens."""

_OPTIONS = {
    "ties": ("pairs: group", "pairs: reference", "rank: group"),
    "rounds": ("pairs: group",),
    "by": ("pairs: group",),
    "quorum": ("pairs: group", "rank: group", "rubric: extra.NAME"),
    "max_members": ("rank: group",),
    "reference_key": ("pairs: reference",),
}


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """How responses are compared, with all defaults filled in.

    Args:
        kind: two at a time in both orders, or several in one ranking.
        against: the siblings of one prompt group, or a reference response.
        ties: whether the judge may call responses equally good.
        rounds: with how many siblings each response is compared; None: all of them.
        by: what a response's value is: its share of wins, or what Bradley-Terry expects it to be.
        quorum: the share of a response's comparisons that must succeed, or it abstains.
        max_members: how many responses one ranking shows at most.
        reference_key: the sample's extra column that holds the reference response.
    """

    kind: Literal["pairs", "rank"]
    against: Against = "group"
    ties: bool = False
    rounds: int | None = None
    by: By = "wins"
    quorum: float = 0.5
    max_members: int = 16
    reference_key: str = "reference"

    @property
    def rubric(self) -> str:
        """The built-in rubric for this kind."""
        return "pairwise" if self.kind == "pairs" else "ranking"


class GroupVerdict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of a verdict rule that compare responses; None where the user gave none.

    Args:
        pairs: two responses at a time, each pair in both orders: ``group`` compares siblings,
            ``reference`` each response with a reference response.
        rank: ``group`` ranks all siblings in one call.
        ties, rounds, by, quorum, max_members, reference_key: see `Comparison`. `by` also says how
            a verdict on one response is read from the probabilities of its tokens.
    """

    pairs: Against | None = None
    rank: Literal["group"] | None = None
    ties: bool | None = None
    rounds: int | None = None
    by: Literal["wins", "bradley_terry", "probability", "expectation"] | None = None
    quorum: float | None = None
    max_members: int | None = None
    reference_key: str | None = None

    @property
    def comparison(self) -> Comparison | None:
        """How responses are compared; None for a verdict on one response."""
        if self.pairs is None and self.rank is None:
            return None
        given = {name: value for name in _OPTIONS if (value := getattr(self, name)) is not None}
        return Comparison(
            kind="pairs" if self.pairs else "rank", against=self.pairs or "group", **given
        )

    def check_comparison(self, kind: str = "") -> None:
        """Raise a ValueError for an option that does not fit what is compared, or out of range.

        Args:
            kind: of a verdict that compares nothing, and may have one of the options.
        """
        if self.pairs or self.rank:
            kind = f"pairs: {self.pairs}" if self.pairs else f"rank: {self.rank}"
        for name, kinds in _OPTIONS.items():
            value = getattr(self, name)
            if value is not None and kind not in kinds and value not in BY_TOKENS:
                raise ValueError(f"{name} goes with {' or '.join(kinds)} only")
        if self.rounds is not None and self.rounds < 1:
            raise ValueError(f"rounds must be at least 1, not {self.rounds}")
        if self.quorum is not None and not 0 < self.quorum <= 1:
            raise ValueError(f"quorum must be in (0, 1], not {self.quorum}")
        if self.max_members is not None and self.max_members < 3:
            raise ValueError(
                f"max_members must be at least 3, not {self.max_members}: "
                "to compare two at a time say pairs: group"
            )
        if self.reference_key is not None and not self.reference_key.strip():
            raise ValueError("reference_key must name a column")
