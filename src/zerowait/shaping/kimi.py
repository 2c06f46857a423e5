"""The shape ``kimi``: the length reward of Kimi k1.5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from zerowait.shaping.group import (
    GroupView,
    Penalties,
    contribution,
    correct_members,
    finite_values,
    known_lengths,
    no_length,
    no_score,
)


def kimi_length_reward(lengths: Sequence[int], correct: Sequence[bool]) -> list[float]:
    """Reward in [-0.5, 0.5] for each member, from the shortest of the group to the longest.

    A correct response gets ``0.5 - (length - shortest) / (longest - shortest)``, a wrong one the
    same but never more than 0. A group of equal lengths gets 0.

    Reference:
        Kimi Team 2025, Kimi k1.5 (arXiv:2501.12599), section 2.3.3.

    >>> kimi_length_reward([100, 150, 200], [True, True, True])
    [0.5, 0.0, -0.5]
    >>> kimi_length_reward([100, 200], [False, False])
    [0.0, -0.5]
    """
    shortest, longest = min(lengths, default=0), max(lengths, default=0)
    if longest == shortest:
        return [0.0] * len(lengths)
    rewards = [0.5 - (length - shortest) / (longest - shortest) for length in lengths]
    return [
        reward if right else min(0.0, reward)
        for reward, right in zip(rewards, correct, strict=True)
    ]


class KimiLength(msgspec.Struct, frozen=True, kw_only=True):
    """The shape ``kimi``: its penalty is minus the length reward, so that it can be a bonus.

    A member is correct when it earned the rules' full score (see `correct_members`).

    Args:
        correct: the rule score from which on a response is correct; None: the rules' full score.
    """

    needs_scores: ClassVar[bool] = True

    correct: float | None = None

    def __post_init__(self) -> None:
        finite_values(correct=self.correct or 0.0)

    def penalties(self, group: GroupView) -> Penalties:
        """The length reward of each member; one without a rule score abstains."""
        lengths, rights = known_lengths(group), correct_members(group, self.correct)
        if lengths is None:
            return [no_length() for _ in group.lengths]
        rewards = kimi_length_reward(lengths, [right is True for right in rights])
        return [
            no_score() if right is None else contribution(-reward, length)
            for reward, length, right in zip(rewards, lengths, rights, strict=True)
        ]
