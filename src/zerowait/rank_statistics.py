"""Rank statistics: Spearman's and Kendall's correlation, the Mann-Whitney rank sum, z-scores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value from 1 on; equal values share the mean of their ranks.

    >>> ranks([10.0, 30.0, 10.0])
    [1.5, 3.0, 1.5]
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for position in order[start : end + 1]:
            found[position] = (start + end) / 2 + 1
        start = end + 1
    return found


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's rho, in [-1, 1]; None where either side has one value only.

    Reference:
        Spearman 1904, The proof and measurement of association between two things.

    >>> rank_correlation([1.0, 2.0, 3.0], [9.0, 4.0, 1.0])
    -1.0
    """
    middle = (len(one) + 1) / 2
    x, y = [rank - middle for rank in ranks(one)], [rank - middle for rank in ranks(other)]
    norm = math.sqrt(math.fsum(a * a for a in x) * math.fsum(b * b for b in y))
    if norm == 0:
        return None
    return max(-1.0, min(1.0, math.fsum(a * b for a, b in zip(x, y, strict=True)) / norm))


def correlation_z(rho: float, count: int) -> float:
    """How many standard errors Spearman's `rho` of `count` pairs is away from 0.

    Reference:
        Fieller, Hartley and Pearson 1957, Tests for rank correlation coefficients (the 1.06).

    >>> round(correlation_z(0.5, 50), 2)
    3.66
    """
    return math.atanh(max(-0.999999, min(0.999999, rho))) * math.sqrt((count - 3) / 1.06)


def rank_sum_z(some: Sequence[float], others: Sequence[float]) -> float:
    """How many standard errors the values of `some` rank above those of `others`; ties allowed.

    0 where all values are equal, or one side is empty.

    Reference:
        Mann and Whitney 1947, On a test of whether one of two random variables is stochastically
        larger than the other; with the usual correction for ties.

    >>> round(rank_sum_z([4.0, 5.0, 6.0], [1.0, 2.0, 3.0]), 2)
    1.96
    """
    together = [*some, *others]
    m, n, total = len(some), len(others), len(together)
    if not m or not n:
        return 0.0
    tied = sum(times**3 - times for times in Counter(together).values())
    variance = m * n / 12 * (total + 1 - tied / (total * (total - 1)))
    if variance <= 0:
        return 0.0
    excess = math.fsum(ranks(together)[:m]) - m * (total + 1) / 2
    return excess / math.sqrt(variance)


def kendall_tau(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Kendall's tau-b, in [-1, 1], which allows ties; None where either side has one value only.

    Of two pairs drawn at random it says how much more often both sides order them alike than the
    other way round. The time is n log n.

    Reference:
        Kendall 1945, The treatment of ties in ranking problems; Knight 1966, A computer method for
        calculating Kendall's tau with ungrouped data.

    >>> kendall_tau([1.0, 2.0, 3.0], [1.0, 3.0, 2.0])
    0.3333333333333333
    """
    count = len(one)
    total = count * (count - 1) // 2
    both = sorted(zip(one, other, strict=True))
    tied_one, tied_other = _tied_pairs(one), _tied_pairs(other)
    if total in (tied_one, tied_other):
        return None
    discordant = _inversions([second for _, second in both])
    concordant = total - tied_one - tied_other + _tied_pairs(both) - discordant
    norm = math.sqrt(float(total - tied_one) * float(total - tied_other))
    return max(-1.0, min(1.0, (concordant - discordant) / norm))


def _tied_pairs(values: Sequence[Hashable]) -> int:
    return sum(times * (times - 1) // 2 for times in Counter(values).values())


def _inversions(values: list[float]) -> int:
    """How many pairs stand in falling order, counted while a copy is merged into rising order."""
    found, width, runs = 0, 1, list(values)
    while width < len(runs):
        merged: list[float] = []
        for start in range(0, len(runs), 2 * width):
            left = runs[start : start + width]
            right = runs[start + width : start + 2 * width]
            at = 0
            for value in right:
                while at < len(left) and left[at] <= value:
                    merged.append(left[at])
                    at += 1
                found += len(left) - at
                merged.append(value)
            merged.extend(left[at:])
        runs, width = merged, 2 * width
    return found
