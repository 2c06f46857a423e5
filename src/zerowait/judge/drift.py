"""How far two measurements of the same anchors are apart: pure arithmetic on shares of a range."""

from __future__ import annotations

import math
from collections.abc import Sequence

from zerowait.events import Drift

_MIDDLE = 0.5


def drift_between(before: Sequence[float | None], now: Sequence[float | None]) -> Drift | None:
    """The drift from `before` to `now`, over the anchors that both have; None for no such anchor.

    >>> drift_between([0.0, 0.5, 1.0], [0.0, 0.75, None])
    Drift(anchors=2, mean_abs=0.125, rank_correlation=1.0, flips=1)
    """
    pairs = [(a, b) for a, b in zip(before, now, strict=True) if a is not None and b is not None]
    if not pairs:
        return None
    return Drift(
        anchors=len(pairs),
        mean_abs=math.fsum(abs(a - b) for a, b in pairs) / len(pairs),
        rank_correlation=_rank_correlation([a for a, _ in pairs], [b for _, b in pairs]),
        flips=sum((a > _MIDDLE) != (b > _MIDDLE) for a, b in pairs),
    )


def _rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's rho with mean ranks for ties; None where either side has one value only.

    Reference:
        Spearman 1904, The proof and measurement of association between two things.
    """
    x, y = _centred_ranks(one), _centred_ranks(other)
    norm = math.sqrt(math.fsum(a * a for a in x) * math.fsum(b * b for b in y))
    if norm == 0:
        return None
    rho = math.fsum(a * b for a, b in zip(x, y, strict=True)) / norm
    return max(-1.0, min(1.0, rho))


def _centred_ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for position in order[start : end + 1]:
            ranks[position] = (start + end - len(order) + 1) / 2  # the mean rank is 0
        start = end + 1
    return ranks
