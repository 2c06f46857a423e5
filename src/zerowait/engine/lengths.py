"""Whether lengths come in two kinds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, pvariance
from typing import NamedTuple

_FEWEST = 64
_SMALLEST_SHARE = 0.1
_BIMODAL = 5 / 9
_APART = 4.0


class Clusters(NamedTuple):
    """The median of the short and of the long ones, and the share of the short ones."""

    short: float
    long: float
    share: float


def two_clusters(lengths: Sequence[int]) -> Clusters | None:
    """The two clusters that `lengths` fall into; None where they are of one kind.

    On the logarithms of at least 64 lengths, two things have to hold. The bimodality coefficient,
    (skewness² + 1) / kurtosis, is greater than 5/9, its value for a uniform distribution. And the
    split that leaves least variance inside of its two parts leaves at least a tenth on each side,
    and parts that are apart by Ashman's D > 4 (a normal distribution, cut in two, has 2.6).

    References:
        SAS Institute 1990, SAS/STAT User's Guide (the coefficient).
        Otsu 1979, A threshold selection method from gray-level histograms (the split).
        Ashman, Bird and Zepf 1994, Detecting bimodality in astronomical datasets (D).

    >>> two_clusters([100, 110, 120, 130] * 16 + [1000, 1100, 1200, 1300] * 16)
    Clusters(short=115.0, long=1150.0, share=0.5)
    >>> two_clusters(range(100, 400)) is None
    True
    """
    if len(lengths) < _FEWEST:
        return None
    ordered = sorted(lengths)
    logs = [math.log1p(max(length, 0)) for length in ordered]
    if _coefficient(logs) <= _BIMODAL:
        return None
    cut = _best_cut(logs)
    below, above = logs[:cut], logs[cut:]
    share = cut / len(logs)
    if not _SMALLEST_SHARE <= share <= 1 - _SMALLEST_SHARE or _distance(below, above) <= _APART:
        return None
    return Clusters(float(median(ordered[:cut])), float(median(ordered[cut:])), share)


def _coefficient(values: Sequence[float]) -> float:
    centre, variance = fmean(values), pvariance(values)
    if variance == 0:
        return 0.0
    deviations = [(value - centre) / math.sqrt(variance) for value in values]
    skewness = fmean([each**3 for each in deviations])
    return (skewness**2 + 1) / fmean([each**4 for each in deviations])


def _best_cut(ordered: Sequence[float]) -> int:
    """How many values stand below the cut that explains most of the variance."""
    total, below, best, cut = math.fsum(ordered), 0.0, -1.0, 1
    for count in range(1, len(ordered)):
        below += ordered[count - 1]
        other = len(ordered) - count
        between = count * other * (below / count - (total - below) / other) ** 2
        if between > best and ordered[count] > ordered[count - 1]:
            best, cut = between, count
    return cut


def _distance(below: Sequence[float], above: Sequence[float]) -> float:
    """Ashman's D; infinite for two parts of one value each."""
    spread = math.sqrt(pvariance(below) + pvariance(above))
    apart = math.sqrt(2) * abs(fmean(above) - fmean(below))
    return apart / spread if spread else math.inf
