"""Rates the responses of a group by the comparisons between them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from zerowait.config.group_verdict import By
from zerowait.types import Abstain, FailureKind, Score

_DRAWN_PER_GAME: Final = 0.25
_CLOSE: Final = 1e-6
_MOST_TURNS: Final = 1000


class Game(NamedTuple):
    """The result of one comparison of two members.

    Args:
        first, second: the members, by index.
        result: of the first: 1 won, 0 lost, 0.5 a tie.
    """

    first: int
    second: int
    result: float


def bradley_terry(size: int, games: Sequence[Game]) -> list[float]:
    """The strength of each member, greater than 0; it beats another with p / (p + p_other).

    A tie counts as half a win for each. For every four games a member also draws one with an
    imaginary member of strength 1, so that strengths stay finite where one has won every game, and
    comparable where the games leave groups of members that never met. The order of members does
    not matter; where all pairs met, more wins are more strength.

    Args:
        size: how many members there are.
        games: the comparisons, members by index in ``range(size)``.

    Reference:
        Bradley and Terry 1952, Rank analysis of incomplete block designs.

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


class Match(NamedTuple):
    """One comparison of two different responses.

    Args:
        first, second: the responses, by index.
        result: of the first: 1 won, 0 lost, 0.5 a tie; or why the comparison failed.
        agreed: whether all answers about the two agreed.
    """

    first: int
    second: int
    result: float | Abstain
    agreed: bool = True


class Rank(NamedTuple):
    """A response's rating among the other responses of its group.

    Args:
        value: the share of them that it beats, in [0, 1], a tie counting half.
        met: with how many of them it was compared, copies of itself included.
        missed: comparisons that failed.
        inconsistent: the share of its comparisons in which two answers disagreed.
    """

    value: float
    met: int
    missed: int
    inconsistent: float


def rank_responses(
    matches: Sequence[Match], copies: Sequence[int], *, by: By, quorum: float
) -> list[Rank | Abstain]:
    """The rating of each distinct response of a group, or an Abstain for too few matches.

    A match counts for all copies of both responses, and copies tie without a match. Under ``wins``
    the value is the mean result over the others that a response met; under ``bradley_terry`` the
    mean probability to beat each of the others, met or not, so that it does not depend on the
    schedule. A failed match is left out for both. A response with results for less than `quorum`
    of its matches abstains, with the most frequent reason.

    Args:
        matches: the comparisons; a pair may occur several times.
        copies: how often each distinct response occurs in the group.
        by: the rating method.
        quorum: the least share of successful matches, in (0, 1].

    >>> [s.value for s in rank_responses([Match(0, 1, 1.0)], [1, 2], by="wins", quorum=0.5)]
    [1.0, 0.25]
    """
    of: list[list[Match]] = [[] for _ in copies]
    for match in matches:
        of[match.first].append(match)
        of[match.second].append(match)
    values = _wins(of, copies) if by == "wins" else _expected(matches, copies)
    return [_rank(i, of[i], copies, values[i], quorum) for i in range(len(copies))]


def ranked_matches(
    windows: Sequence[Sequence[int]], outcomes: Sequence[Score | Abstain]
) -> list[Match]:
    """One match for each pair of responses that a ranking shows.

    A pair that several windows show has one match; windows that disagree make it a tie.

    Args:
        windows: the responses that each ranking shows, by index.
        outcomes: of each ranking: a Score whose ``detail["order"]`` lists positions in the window,
            best place first, or why there is none.
    """
    said: dict[tuple[int, int], list[float | Abstain]] = {}
    for window, outcome in zip(windows, outcomes, strict=True):
        places: dict[int, int] = {}
        if isinstance(outcome, Score):
            for place, positions in enumerate(outcome.detail["order"]):
                places |= {window[position]: place for position in positions}
        for first, second in combinations(window, 2):
            result = outcome if isinstance(outcome, Abstain) else _result(places, first, second)
            said.setdefault((first, second), []).append(result)
    return [_match(pair, results) for pair, results in said.items()]


def _match(pair: tuple[int, int], said: Sequence[float | Abstain]) -> Match:
    results = {result for result in said if not isinstance(result, Abstain)}
    if not results:
        return Match(*pair, said[0])
    return Match(*pair, results.pop()) if len(results) == 1 else Match(*pair, 0.5, agreed=False)


def _result(places: Mapping[int, int], first: int, second: int) -> float:
    return 0.5 if places[first] == places[second] else float(places[first] < places[second])


def _rank(
    index: int, matches: Sequence[Match], copies: Sequence[int], value: float, quorum: float
) -> Rank | Abstain:
    met, missed, lost = copies[index] - 1, 0, Counter[FailureKind]()
    reached = disagreed = 0
    for match in matches:
        weight = copies[_other(match, index)]
        if isinstance(match.result, Abstain):
            missed += weight
            lost[match.result.kind] += 1
        else:
            met += weight
            reached += 1
            disagreed += not match.agreed
    if not met or met < quorum * (met + missed):
        kind = lost.most_common(1)[0][0] if lost else FailureKind.BAD_INPUT
        detail = f"{met} of {met + missed} comparisons reached a verdict, quorum {quorum:g}"
        first = next((m.result for m in matches if isinstance(m.result, Abstain)), None)
        return Abstain(kind, f"{detail}; {first.detail}" if first else detail)
    return Rank(value, met, missed, disagreed / reached if reached else 0.0)


def _wins(of: Sequence[Sequence[Match]], copies: Sequence[int]) -> list[float]:
    """The mean result of each response over all that it met; 0.5 for one that met none."""
    values = []
    for index, matches in enumerate(of):
        won, weight = [0.5 * (copies[index] - 1)], copies[index] - 1
        for match in matches:
            if not isinstance(match.result, Abstain):
                times = copies[_other(match, index)]
                result = match.result if match.first == index else 1.0 - match.result
                won.append(times * result)
                weight += times
        values.append(math.fsum(won) / weight if weight else 0.5)
    return values


def _expected(matches: Sequence[Match], copies: Sequence[int]) -> list[float]:
    """The mean probability of each response to beat another, from Bradley-Terry strengths."""
    games = [
        Game(match.first, match.second, match.result)
        for match in matches
        if not isinstance(match.result, Abstain)
    ]
    strengths = bradley_terry(len(copies), games)
    known = {index for game in games for index in (game.first, game.second)}
    values = []
    for index, strength in enumerate(strengths):
        others = known - {index}
        chances = [copies[j] * strength / (strength + strengths[j]) for j in others]
        weight = sum(copies[j] for j in others) + copies[index] - 1
        won = math.fsum((0.5 * (copies[index] - 1), *chances))
        values.append(won / weight if weight else 0.5)
    return values


def _other(match: Match, index: int) -> int:
    return match.second if match.first == index else match.first
