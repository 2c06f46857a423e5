"""Whether response lengths fall into two clusters: Otsu's split, Ashman's D and Hartigan's dip."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby, pairwise
from statistics import fmean, median
from typing import NamedTuple

_FEWEST_LENGTHS = 64
_MOST_LENGTHS = 2048  # more are thinned out evenly: the dip visits each several times
_SMALLEST_SHARE = 0.1
_ASHMAN_D = 4.0
_ROWS_PER_LENGTH = 8  # with so many rows per different length, each length is a peak of its own
_GAP_RATIO = 3.0
_DIP = 0.73
"""Times 1 / sqrt(n): fewer than 1 of 1,000 samples of a uniform distribution have such a dip."""


class Clusters(NamedTuple):
    """Two clusters of lengths: the median of each in tokens, and the share of the short one."""

    short: float
    long: float
    share: float


def two_clusters(lengths: Sequence[int]) -> Clusters | None:
    """The two clusters that `lengths` (tokens) fall into; None where there is one cluster.

    All of this has to hold for the logarithms of at least 64 lengths:

    - Otsu's split, which leaves the least variance inside of the two parts, leaves at least a tenth
      of the lengths on each side.
    - The parts are apart by Ashman's D > 4. (A normal distribution, cut in two, has 2.6; a uniform
      one 3.5.)
    - Hartigan's dip is greater than 0.73 / sqrt(n). Of all distributions with one peak the uniform
      one has the largest dips, and fewer than 1 in 1,000 of its samples have one as large.
    - With few different lengths, the gap between the parts is three times any gap inside of them.

    Equal lengths are spread over the width of one token first, since a distribution of whole
    numbers has a peak at each of them.

    References:
        Otsu 1979, A threshold selection method from gray-level histograms (the split).
        Ashman, Bird and Zepf 1994, Detecting bimodality in astronomical datasets (D).
        Hartigan and Hartigan 1985, The dip test of unimodality.

    >>> two_clusters([100, 110, 120, 130] * 16 + [1000, 1100, 1200, 1300] * 16)
    Clusters(short=115.0, long=1150.0, share=0.5)
    >>> two_clusters(range(100, 400)) is None
    True
    """
    if len(lengths) < _FEWEST_LENGTHS:
        return None
    ordered = sorted(max(length, 0) for length in lengths)
    logs = [math.log1p(length) for length in _spread(ordered)]
    cut = _best_cut(logs)
    below, above = logs[:cut], logs[cut:]
    share = cut / len(logs)
    if not _SMALLEST_SHARE <= share <= 1 - _SMALLEST_SHARE or _ashman_d(below, above) <= _ASHMAN_D:
        return None
    if len(set(ordered)) * _ROWS_PER_LENGTH <= len(ordered) and not _has_gap(below, above):
        return None
    sample = logs[:: -(-len(logs) // _MOST_LENGTHS)]
    if dip(sample) * math.sqrt(len(sample)) <= _DIP:
        return None
    return Clusters(float(median(ordered[:cut])), float(median(ordered[cut:])), share)


def dip(ordered: Sequence[float]) -> float:
    """Hartigan's dip in [0, 0.25] of values in ascending order, no two of them equal.

    It is the greatest distance between their empirical distribution and the nearest distribution
    with a single peak.

    Reference:
        Hartigan 1985, Computation of the dip statistic to test for unimodality (AS 217).

    >>> round(dip([1, 2, 3, 4]), 3), round(dip([1, 1.01, 1.02, 9, 9.01, 9.02]), 3)
    (0.125, 0.249)
    """
    count = len(ordered)
    low, high, found = 0, count - 1, 1.0
    while low < high:
        convex = _hull(ordered, range(low, high + 1), sign=1)
        concave = _hull(ordered, range(low, high + 1), sign=-1)
        gap, left, right = _widest_gap(ordered, convex, concave)
        if gap <= found:
            break
        found = max(
            found,
            _most_above(ordered, [i for i in convex if i <= left]),
            _most_below(ordered, [i for i in concave if i >= right]),
        )
        if (left, right) == (low, high):
            break
        low, high = left, right
    return found / (2 * count)


def _hull(ordered: Sequence[float], indices: range, *, sign: int) -> list[int]:
    """Indices at which the greatest convex minorant of the ranks touches them.

    With a `sign` of -1: at which the least concave majorant does.
    """
    touched: list[int] = []
    for index in indices:
        while len(touched) > 1 and sign * _turn(ordered, touched[-2], touched[-1], index) <= 0:
            touched.pop()
        touched.append(index)
    return touched


def _turn(ordered: Sequence[float], a: int, b: int, c: int) -> float:
    """Above 0 where the ranks rise faster from `b` to `c` than from `a` to `b`."""
    return (c - b) * (ordered[b] - ordered[a]) - (b - a) * (ordered[c] - ordered[b])


def _widest_gap(
    ordered: Sequence[float], convex: Sequence[int], concave: Sequence[int]
) -> tuple[float, int, int]:
    """The greatest distance between the hulls at an index where one touches, and where it is.

    The second and third number are the indices around it at which the convex and the concave hull
    touch.
    """
    best = (-1.0, convex[0], concave[-1])
    segment = 1
    for touch in convex:
        while concave[segment] < touch:
            segment += 1
        begin, end = concave[segment - 1], concave[segment]
        gap = _between(ordered, begin, end, touch) - touch + 1
        if gap > best[0]:
            best = (gap, touch, begin if begin == touch else end)
    segment = 1
    for touch in concave:
        while convex[segment] < touch:
            segment += 1
        begin, end = convex[segment - 1], convex[segment]
        gap = touch + 1 - _between(ordered, begin, end, touch)
        if gap > best[0]:
            best = (gap, end if end == touch else begin, touch)
    return best


def _between(ordered: Sequence[float], begin: int, end: int, at: int) -> float:
    """The rank at index `at` on the straight line from `begin` to `end`."""
    share = (ordered[at] - ordered[begin]) / (ordered[end] - ordered[begin])
    return begin + share * (end - begin)


def _most_above(ordered: Sequence[float], convex: Sequence[int]) -> float:
    """The most by which the distribution stands above its convex minorant."""
    return max(
        (
            at + 1 - _between(ordered, begin, end, at)
            for begin, end in pairwise(convex)
            for at in range(begin, end + 1)
        ),
        default=0.0,
    )


def _most_below(ordered: Sequence[float], concave: Sequence[int]) -> float:
    """The most by which the distribution stands below its concave majorant."""
    return max(
        (
            _between(ordered, begin, end, at) + 1 - at
            for begin, end in pairwise(concave)
            for at in range(begin, end + 1)
        ),
        default=0.0,
    )


def _spread(ordered: Sequence[int]) -> list[float]:
    """The lengths; equal ones are spread evenly over the width of one token."""
    spread: list[float] = []
    for length, equal in groupby(ordered):
        times, begin = len(list(equal)), max(length, 0.5) - 0.5
        spread += [begin + (each + 0.5) / times for each in range(times)]
    return spread


def _has_gap(below: Sequence[float], above: Sequence[float]) -> bool:
    """Whether the gap between the parts is much wider than any gap inside of them."""
    inside = max(b - a for part in (below, above) for a, b in pairwise([part[0], *part]))
    return above[0] - below[-1] > _GAP_RATIO * inside


def _best_cut(ordered: Sequence[float]) -> int:
    """How many values are below Otsu's cut, which explains most of the variance."""
    total, below, best, cut = math.fsum(ordered), 0.0, -1.0, 1
    for count in range(1, len(ordered)):
        below += ordered[count - 1]
        other = len(ordered) - count
        between = count * other * (below / count - (total - below) / other) ** 2
        if between > best and ordered[count] > ordered[count - 1]:
            best, cut = between, count
    return cut


def _ashman_d(below: Sequence[float], above: Sequence[float]) -> float:
    """Ashman's D; infinite for two parts of one value each."""
    spread = math.sqrt(_variance(below) + _variance(above))
    apart = math.sqrt(2) * abs(fmean(above) - fmean(below))
    return apart / spread if spread else math.inf


def _variance(values: Sequence[float]) -> float:
    """Of these values themselves; the one of `statistics` is exact, in twenty times the time."""
    mean = fmean(values)
    return math.fsum((value - mean) ** 2 for value in values) / len(values)
