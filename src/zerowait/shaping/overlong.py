"""The shapes ``soft_overlong`` and ``hard_cap``: penalties near and beyond a length limit."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from zerowait.shaping.group import (
    GroupView,
    Penalties,
    clipped,
    contribution,
    finite_values,
    no_length,
    require,
)


def soft_overlong(length: int, *, limit: int, buffer: int) -> float:
    """Penalty in [0, 1] for a response of `length` tokens.

    0 up to ``limit - buffer``, then a straight line up to 1 at `limit`, and 1 beyond: the published
    reward is minus this. (verl's version goes on falling beyond the limit.)

    Reference:
        Yu et al. 2025, DAPO (arXiv:2503.14476), section 3.4.

    >>> [soft_overlong(length, limit=100, buffer=20) for length in (80, 90, 100, 500)]
    [0.0, 0.5, 1.0, 1.0]
    """
    return clipped((length - (limit - buffer)) / buffer, 0.0, 1.0)


def hard_cap(length: int, *, limit: int) -> float:
    """Penalty 1 for a response of more than `limit` tokens, else 0.

    >>> hard_cap(100, limit=100), hard_cap(101, limit=100)
    (0.0, 1.0)
    """
    return float(length > limit)


class SoftOverlong(msgspec.Struct, frozen=True, kw_only=True):
    """The shape ``soft_overlong``.

    Args:
        limit: tokens from which on the penalty is full.
        buffer: tokens before `limit` over which it rises.
        max_penalty: the full penalty.

    Raises:
        ValueError: ``0 < buffer <= limit`` or ``max_penalty >= 0`` does not hold.
    """

    needs_scores: ClassVar[bool] = False

    limit: int
    buffer: int
    max_penalty: float = 1.0

    def __post_init__(self) -> None:
        finite_values(limit=self.limit)
        require(
            0 < self.buffer <= self.limit,
            f"buffer must be from 1 to limit ({self.limit}), but is {self.buffer}",
        )
        _check_penalty(self.max_penalty)

    def penalties(self, group: GroupView) -> Penalties:
        """Minus the penalty of each member; one without a length abstains."""
        return [
            no_length()
            if length is None
            else contribution(
                self.max_penalty * soft_overlong(length, limit=self.limit, buffer=self.buffer),
                length,
            )
            for length in group.lengths
        ]


class HardCap(msgspec.Struct, frozen=True, kw_only=True):
    """The shape ``hard_cap``.

    Args:
        limit: the most tokens that cost nothing.
        max_penalty: what more than that costs.

    Raises:
        ValueError: ``limit > 0`` or ``max_penalty >= 0`` does not hold.
    """

    needs_scores: ClassVar[bool] = False

    limit: int
    max_penalty: float = 1.0

    def __post_init__(self) -> None:
        finite_values(limit=self.limit)
        require(self.limit > 0, f"limit must be greater than 0, but is {self.limit}")
        _check_penalty(self.max_penalty)

    def penalties(self, group: GroupView) -> Penalties:
        """Minus the penalty of each member; one without a length abstains."""
        return [
            no_length()
            if length is None
            else contribution(self.max_penalty * hard_cap(length, limit=self.limit), length)
            for length in group.lengths
        ]


def _check_penalty(max_penalty: float) -> None:
    finite_values(max_penalty=max_penalty)
    require(max_penalty >= 0, f"max_penalty must not be negative, but is {max_penalty}")
