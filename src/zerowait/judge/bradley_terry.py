"""Strengths from comparisons: the Bradley-Terry model, fitted with Hunter's MM algorithm.

References:
    Bradley and Terry 1952, "Rank analysis of incomplete block designs".
    Hunter 2004, "MM algorithms for generalized Bradley-Terry models".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

_DRAWN_PER_GAME: Final = 0.25
_CLOSE: Final = 1e-6
_MOST_TURNS: Final = 1000


class Game(NamedTuple):
    """What one comparison of two members said.

    Args:
        first, second: the members, by index.
        result: of the first: 1 won, 0 lost, 0.5 a tie.
    """

    first: int
    second: int
    result: float


def bradley_terry(size: int, games: Sequence[Game]) -> list[float]:
    """The strength of each member, greater than 0; it beats another with p / (p + p_other).

    A tie counts as half a win for each. For every four games a member also draws one with a member
    of strength 1, so that strengths stay finite where one has won every game, and can be compared
    where the games leave the members in parts that never met. Members in another order get the
    same strengths in that order; where everybody met everybody, more wins are more strength.

    >>> p = bradley_terry(2, [Game(0, 1, 1.0)] * 3)
    >>> round(p[0] / (p[0] + p[1]), 2)
    0.93
    """
    won: list[list[float]] = [[] for _ in range(size)]
    met: list[list[int]] = [[] for _ in range(size)]
    for first, second, result in games:
        won[first].append(result)
        won[second].append(1.0 - result)
        met[first].append(second)
        met[second].append(first)
    drawn = [_DRAWN_PER_GAME * len(others) or 1.0 for others in met]
    wins = [math.fsum((draws / 2, *results)) for draws, results in zip(drawn, won, strict=True)]
    strengths = [1.0] * size
    for _ in range(_MOST_TURNS):
        # math.fsum does not depend on the order of its terms, which keeps equal members equal
        better = [
            wins[i] / math.fsum((drawn[i] / (p + 1.0), *(1.0 / (p + strengths[j]) for j in met[i])))
            for i, p in enumerate(strengths)
        ]
        moved = max((abs(b / p - 1.0) for b, p in zip(better, strengths, strict=True)), default=0.0)
        strengths = better
        if moved < _CLOSE:
            break
    return strengths
