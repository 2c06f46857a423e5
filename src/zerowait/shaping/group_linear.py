"""A penalty that grows with a response's share of the group's longest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from zerowait.shaping.group import (
    GroupView,
    Penalties,
    clipped,
    contribution,
    finite,
    known_lengths,
    known_scores,
    no_length,
    no_score,
    require,
)


def group_linear(
    lengths: Sequence[int],
    scores: Sequence[float | None],
    *,
    coefficient: float = 0.25,
    only_correct: bool = False,
) -> list[float]:
    """Penalty in [0, coefficient] for each member: coefficient x pass rate x share of the longest.

    The pass rate is the mean score of the members that have one, cut to [0, 1], so that a problem
    that is always solved presses hardest for short answers and one never solved not at all.

    Args:
        lengths: tokens per member.
        scores: rule score per member; None where there is none.
        coefficient: the penalty of the longest response to a problem that is always solved.
        only_correct: members with a score of 0 or less pay nothing.

    Reference:
        The linear length penalty of prime-rl (pull requests 2702 and 2901), completion term.

    >>> group_linear([100, 50], [1.0, 1.0]), group_linear([100, 50], [1.0, 0.0])
    ([0.25, 0.125], [0.125, 0.0625])
    """
    known = [score for score in scores if score is not None]
    longest = max(lengths, default=0)
    if not known or longest <= 0:
        return [0.0] * len(lengths)
    factor = coefficient * clipped(sum(known) / len(known), 0.0, 1.0)
    return [
        0.0 if only_correct and (score is None or score <= 0) else factor * (length / longest)
        for length, score in zip(lengths, scores, strict=True)
    ]


class GroupLinear(msgspec.Struct, frozen=True, kw_only=True):
    """The shape ``group_linear``.

    Args:
        coefficient: the penalty of the longest response to a problem that is always solved.
        only_correct: members with a score of 0 or less pay nothing.

    Raises:
        ValueError: `coefficient` is negative.
    """

    needs_scores: ClassVar[bool] = True

    coefficient: float = 0.25
    only_correct: bool = False

    def __post_init__(self) -> None:
        finite(coefficient=self.coefficient)
        require(self.coefficient >= 0, f"coefficient must not be negative: {self.coefficient}")

    def penalties(self, group: GroupView) -> Penalties:
        """Minus the penalty of each member; one without a rule score abstains."""
        lengths, scores = known_lengths(group), known_scores(group)
        if lengths is None:
            return [no_length() for _ in group.lengths]
        found = group_linear(
            lengths, scores, coefficient=self.coefficient, only_correct=self.only_correct
        )
        return [
            no_score() if score is None else contribution(penalty, length)
            for penalty, length, score in zip(found, lengths, scores, strict=True)
        ]
