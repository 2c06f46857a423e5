"""The shape ``group_linear``: a penalty in proportion to the length of the group's longest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from zerowait.shaping.group import (
    FULL_SCORE,
    GroupView,
    Penalties,
    contribution,
    correct_members,
    finite_values,
    known_lengths,
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
    correct: float = FULL_SCORE,
) -> list[float]:
    """Penalty in [0, coefficient] for each member: coefficient x pass rate x share of the longest.

    The pass rate is the share of correct ones among the members that have a score. So a problem
    that is always solved presses hardest for short answers, and one never solved not at all,
    whatever its wrong answers got for their form.

    Args:
        lengths: tokens per member.
        scores: rule score per member; None where there is none.
        coefficient: the penalty of the longest response to a problem that is always solved.
        only_correct: members that are not correct pay nothing.
        correct: the score from which on a member is correct.

    Reference:
        The linear length penalty of prime-rl (pull requests 2702 and 2901), completion term.

    >>> group_linear([100, 50], [1.0, 1.0]), group_linear([100, 50], [1.0, 0.0])
    ([0.25, 0.125], [0.125, 0.0625])
    """
    rights = [None if score is None else score >= correct for score in scores]
    known = [right for right in rights if right is not None]
    longest = max(lengths, default=0)
    if not known or longest <= 0:
        return [0.0] * len(lengths)
    factor = coefficient * (sum(known) / len(known))
    return [
        0.0 if only_correct and not right else factor * (length / longest)
        for length, right in zip(lengths, rights, strict=True)
    ]


class GroupLinear(msgspec.Struct, frozen=True, kw_only=True):
    """The shape ``group_linear``.

    Args:
        coefficient: the penalty of the longest response to a problem that is always solved.
        only_correct: members that are not correct pay nothing.
        correct: the rule score from which on a response is correct; None: the rules' full score.

    Raises:
        ValueError: `coefficient` is negative.
    """

    needs_scores: ClassVar[bool] = True

    coefficient: float = 0.25
    only_correct: bool = False
    correct: float | None = None

    def __post_init__(self) -> None:
        finite_values(coefficient=self.coefficient, correct=self.correct or 0.0)
        require(self.coefficient >= 0, f"coefficient must not be negative: {self.coefficient}")

    def penalties(self, group: GroupView) -> Penalties:
        """Minus the penalty of each member; one without a rule score abstains."""
        lengths, rights = known_lengths(group), correct_members(group, self.correct)
        if lengths is None:
            return [no_length() for _ in group.lengths]
        found = group_linear(
            lengths,
            [None if right is None else float(right) for right in rights],
            coefficient=self.coefficient,
            only_correct=self.only_correct,
        )
        return [
            no_score() if right is None else contribution(penalty, length)
            for penalty, length, right in zip(found, lengths, rights, strict=True)
        ]
