"""The shape ``median_band``: no penalty in a band around the group's median length."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import ClassVar

import msgspec

from zerowait.shaping.group import (
    GroupView,
    Penalties,
    contribution,
    finite_values,
    known_lengths,
    no_length,
    require,
)

# A length on an edge must not become a penalty, or miss the full one, by the last bit of a float.
_ROUNDING = 1e-9


def median_band(
    lengths: Sequence[int],
    *,
    peak_ratio: float = 0.3,
    outer_ratio: float = 0.5,
    max_penalty: float = 1.0,
) -> list[float]:
    """Penalty in [0, max_penalty] for each length of a group with median M.

    0 from ``M (1 - peak_ratio)`` to ``M (1 + peak_ratio)``, both included; from there a straight
    line up to `max_penalty` at ``M (1 ± outer_ratio)``, and `max_penalty` beyond. M is the mean of
    the middle two in a group of even size. A median of 0 gives no penalty.

    Raises:
        ValueError: ``0 <= peak_ratio < outer_ratio`` or ``max_penalty >= 0`` does not hold.

    >>> median_band([100, 100, 130, 140, 155, 70, 65, 40])
    [0.0, 0.0, 0.0, 0.5, 1.0, 0.0, 0.25, 1.0]
    """
    _check(peak_ratio, outer_ratio, max_penalty)
    middle = median(lengths) if lengths else 0
    if middle <= 0:
        return [0.0] * len(lengths)
    free, width = middle * peak_ratio, middle * (outer_ratio - peak_ratio)
    return [max_penalty * _ramp((abs(length - middle) - free) / width) for length in lengths]


class MedianBand(msgspec.Struct, frozen=True, kw_only=True):
    """The shape ``median_band``. Its detail says penalty, response_length and median_length.

    Args:
        peak_ratio: half the width of the free band, relative to the median.
        outer_ratio: where the full penalty begins, relative to the median.
        max_penalty: the full penalty.

    Raises:
        ValueError: ``0 <= peak_ratio < outer_ratio`` or ``max_penalty >= 0`` does not hold.
    """

    needs_scores: ClassVar[bool] = False

    peak_ratio: float = 0.3
    outer_ratio: float = 0.5
    max_penalty: float = 1.0

    def __post_init__(self) -> None:
        _check(self.peak_ratio, self.outer_ratio, self.max_penalty)

    def penalties(self, group: GroupView) -> Penalties:
        """Minus the penalty of each member; all abstain when one length is not known."""
        lengths = known_lengths(group)
        if lengths is None:
            return [no_length() for _ in group.lengths]
        if not lengths:
            return []
        found = median_band(
            lengths,
            peak_ratio=self.peak_ratio,
            outer_ratio=self.outer_ratio,
            max_penalty=self.max_penalty,
        )
        middle = float(median(lengths))
        return [
            contribution(penalty, length, median_length=middle)
            for penalty, length in zip(found, lengths, strict=True)
        ]


def _ramp(share: float) -> float:
    """0 up to 0, 1 from 1 on, and `share` between, forgiving the rounding at both edges."""
    if share <= _ROUNDING:
        return 0.0
    return 1.0 if share >= 1.0 - _ROUNDING else share


def _check(peak_ratio: float, outer_ratio: float, max_penalty: float) -> None:
    finite_values(peak_ratio=peak_ratio, outer_ratio=outer_ratio, max_penalty=max_penalty)
    require(peak_ratio >= 0, f"peak_ratio must not be negative, but is {peak_ratio}")
    require(
        outer_ratio > peak_ratio,
        f"outer_ratio must be greater than peak_ratio, but {outer_ratio} <= {peak_ratio}",
    )
    require(max_penalty >= 0, f"max_penalty must not be negative, but is {max_penalty}")
