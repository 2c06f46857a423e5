"""The shapes ``lcpo_exact`` and ``lcpo_max``: penalties for missing a target length."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from zerowait.shaping.group import (
    GroupView,
    Penalties,
    clipped,
    contribution,
    correct_members,
    finite_values,
    known_scores,
    no_length,
    no_score,
    no_target,
    require,
    target_of,
)


def lcpo_exact(length: int, target: float, *, alpha: float = 0.0003) -> float:
    """Penalty for a response of `length` tokens: alpha per token that it is off `target`.

    Reference:
        Aggarwal and Welleck 2025, L1 (arXiv:2503.04697), equation 1.

    >>> lcpo_exact(1200, 1000.0, alpha=0.001)
    0.2
    """
    return alpha * abs(target - length)


def lcpo_max(
    length: int, target: float, score: float, *, alpha: float = 0.0003, delta: float = 0.5
) -> float:
    """Penalty in [0, score] that leaves ``score x clip(alpha (target - length) + delta, 0, 1)``.

    The published reward multiplies; taken off the rule score this penalty gives that product. A
    score of 0 or less is left as it is.

    Reference:
        Aggarwal and Welleck 2025, L1 (arXiv:2503.04697), equation 2.

    >>> [lcpo_max(length, 1000.0, 1.0, alpha=0.001) for length in (500, 1000, 1500)]
    [0.0, 0.5, 1.0]
    """
    return max(score, 0.0) * (1.0 - clipped(alpha * (target - length) + delta, 0.0, 1.0))


class LcpoExact(msgspec.Struct, frozen=True, kw_only=True):
    """The shape ``lcpo_exact``: the targets are the samples' ``target_tokens``.

    Args:
        alpha: penalty per token off the target.
        max_penalty: the most that a response pays; None, as published, sets no bound.

    Raises:
        ValueError: `alpha` is not greater than 0, or `max_penalty` is negative.
    """

    needs_scores: ClassVar[bool] = False

    alpha: float = 0.0003
    max_penalty: float | None = None

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)
        if self.max_penalty is not None:
            finite_values(max_penalty=self.max_penalty)
            require(self.max_penalty >= 0, f"max_penalty must not be negative: {self.max_penalty}")

    def penalties(self, group: GroupView) -> Penalties:
        """Minus the penalty of each member; one without a length or a target abstains."""
        found: Penalties = []
        for index, length in enumerate(group.lengths):
            target = target_of(group, index)
            if length is None or target is None:
                found.append(no_length() if length is None else no_target())
            else:
                penalty = lcpo_exact(length, target, alpha=self.alpha)
                if self.max_penalty is not None:
                    penalty = min(penalty, self.max_penalty)
                found.append(contribution(penalty, length, target_length=target))
        return found


class LcpoMax(msgspec.Struct, frozen=True, kw_only=True):
    """The shape ``lcpo_max``: the targets are the samples' ``target_tokens``.

    Only what a correct response earned is shortened, as published: a wrong one keeps what it got
    for its form, whatever its length. A member is correct when it earned the rules' full score (see
    `correct_members`).

    Args:
        alpha: how fast the factor falls per token.
        delta: the factor at the target itself.
        correct: the rule score from which on a response is correct; None: the rules' full score.

    Raises:
        ValueError: `alpha` is not greater than 0, or `delta` is not in [0, 1].
    """

    needs_scores: ClassVar[bool] = True

    alpha: float = 0.0003
    delta: float = 0.5
    correct: float | None = None

    def __post_init__(self) -> None:
        _check_alpha(self.alpha)
        finite_values(correct=self.correct or 0.0)
        require(0 <= self.delta <= 1, f"delta must be in [0, 1], but is {self.delta}")

    def penalties(self, group: GroupView) -> Penalties:
        """Minus the penalty of each member; one without length, target or score abstains."""
        found: Penalties = []
        scores, rights = known_scores(group), correct_members(group, self.correct)
        for index, (length, score) in enumerate(zip(group.lengths, scores, strict=True)):
            target = target_of(group, index)
            if length is None or target is None:
                found.append(no_length() if length is None else no_target())
            elif score is None:
                found.append(no_score())
            else:
                earned = score if rights[index] else 0.0
                penalty = lcpo_max(length, target, earned, alpha=self.alpha, delta=self.delta)
                found.append(contribution(penalty, length, target_length=target))
        return found


def _check_alpha(alpha: float) -> None:
    finite_values(alpha=alpha)
    require(alpha > 0, f"alpha must be greater than 0, but is {alpha}")
