"""The shape ``repetition``: a penalty for repeated n-grams."""

from __future__ import annotations

from itertools import islice
from typing import ClassVar

import msgspec

from zerowait.shaping.group import GroupView, Penalties, contribution, finite_values, require
from zerowait.types import Abstain, FailureKind


def repetition(text: str, *, ngram: int = 3) -> float:
    """Penalty in [0, 1): the share of word n-grams that occurred before in `text`.

    0 for a text of fewer than `ngram` words; case does not matter.

    Reference:
        Yeo et al. 2025, Demystifying Long Chain-of-Thought Reasoning in LLMs (arXiv:2502.03373),
        n-gram repetition penalty.

    >>> repetition("to be or not"), repetition("la la la la la")
    (0.0, 0.6666666666666667)
    """
    words = text.lower().split()
    total = len(words) - ngram + 1
    if total <= 0:
        return 0.0
    distinct = len(set(zip(*(islice(words, start, None) for start in range(ngram)), strict=False)))
    return 1.0 - distinct / total


class Repetition(msgspec.Struct, frozen=True, kw_only=True):
    """The shape ``repetition``, over each member's own text.

    Args:
        ngram: words per n-gram.
        max_penalty: the factor of the repeated share.

    Raises:
        ValueError: ``ngram > 0`` or ``max_penalty >= 0`` does not hold.
    """

    needs_scores: ClassVar[bool] = False

    ngram: int = 3
    max_penalty: float = 1.0

    def __post_init__(self) -> None:
        finite_values(max_penalty=self.max_penalty)
        require(self.ngram > 0, f"ngram must be greater than 0, but is {self.ngram}")
        require(self.max_penalty >= 0, f"max_penalty must not be negative: {self.max_penalty}")

    def penalties(self, group: GroupView) -> Penalties:
        """Minus the penalty of each member; all abstain where the group brings no texts."""
        if not group.responses:
            return [Abstain(FailureKind.BAD_INPUT, "no texts") for _ in group.lengths]
        return [
            contribution(self.max_penalty * repetition(text, ngram=self.ngram), length)
            for text, length in zip(group.responses, group.lengths, strict=True)
        ]
