"""The shape ``cosine``: a length reward along a cosine, by whether the response is correct."""

from __future__ import annotations

import math
from typing import ClassVar

import msgspec

from zerowait.shaping.group import (
    GroupView,
    Penalties,
    contribution,
    correct_members,
    finite_values,
    no_length,
    no_score,
    require,
)


def cosine_between(length: int, *, limit: int, start: float, end: float) -> float:
    """Half a cosine wave from `start` at length 0 to `end` at `limit` tokens.

    >>> [round(cosine_between(n, limit=100, start=2.0, end=1.0), 3) for n in (0, 50, 100)]
    [2.0, 1.5, 1.0]
    """
    return end + (start - end) * (1 + math.cos(math.pi * length / limit)) / 2


class Cosine(msgspec.Struct, frozen=True, kw_only=True):
    """The shape ``cosine``: rewards correct responses for being short, wrong ones for being long.

    A member is correct when it earned the rules' full score (see `correct_members`). The defaults
    are the paper's, where this reward replaces the rule's; its penalty is minus the reward, so that
    it can be a bonus.

    Args:
        limit: the longest response, in tokens; from there on the reward is `exceeded`.
        correct_start: reward of a correct response of length 0.
        correct_end: reward of a correct response just below `limit`.
        wrong_start: reward of a wrong response of length 0.
        wrong_end: reward of a wrong response just below `limit`.
        exceeded: reward of a response of `limit` tokens or more.
        correct: the rule score from which on a response is correct; None: the rules' full score.

    Raises:
        ValueError: `limit` is not greater than 0, or a number is not finite.

    Reference:
        Yeo et al. 2025, Demystifying Long Chain-of-Thought Reasoning in LLMs (arXiv:2502.03373).
    """

    needs_scores: ClassVar[bool] = True

    limit: int
    correct_start: float = 2.0
    correct_end: float = 1.0
    wrong_start: float = -10.0
    wrong_end: float = 0.0
    exceeded: float = -10.0
    correct: float | None = None

    def __post_init__(self) -> None:
        finite_values(limit=self.limit)
        require(self.limit > 0, f"limit must be greater than 0, but is {self.limit}")
        finite_values(
            correct_start=self.correct_start,
            correct_end=self.correct_end,
            wrong_start=self.wrong_start,
            wrong_end=self.wrong_end,
            exceeded=self.exceeded,
            correct=self.correct or 0.0,
        )

    def reward(self, length: int, *, correct: bool) -> float:
        """The reward of a response of `length` tokens.

        >>> Cosine(limit=100).reward(0, correct=False), Cosine(limit=100).reward(100, correct=True)
        (-10.0, -10.0)
        """
        if length >= self.limit:
            return self.exceeded
        start, end = self.wrong_start, self.wrong_end
        if correct:
            start, end = self.correct_start, self.correct_end
        return cosine_between(length, limit=self.limit, start=start, end=end)

    def penalties(self, group: GroupView) -> Penalties:
        """The reward of each member; one without a length or a rule score abstains."""
        found: Penalties = []
        rights = correct_members(group, self.correct)
        for length, right in zip(group.lengths, rights, strict=True):
            if length is None or right is None:
                found.append(no_length() if length is None else no_score())
            else:
                found.append(contribution(-self.reward(length, correct=right), length))
        return found
