"""Who meets whom, and what the results make of each response."""

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.judge.comparing.ranking import (
    Game,
    Match,
    bradley_terry,
    rank_responses,
    ranked_matches,
)
from zerowait.judge.comparing.schedule import by_content, pairings, windows
from zerowait.types import Abstain, FailureKind, Score

LATE = Abstain("timeout", "no answer in 60 s")
RESULTS = st.sampled_from([0.0, 0.5, 1.0])


@st.composite
def games(draw, least=0):
    size = draw(st.integers(2, 7))
    pair = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)).filter(
        lambda p: p[0] != p[1]
    )
    pairs = draw(st.lists(pair, min_size=least, max_size=20))
    return size, [Game(i, j, draw(RESULTS)) for i, j in pairs]


@st.composite
def round_robins(draw):
    size = draw(st.integers(2, 7))
    return size, [Game(i, j, draw(RESULTS)) for i, j in combinations(range(size), 2)]


@settings(max_examples=40)
@given(games(), st.randoms())
def test_strengths_follow_their_members_into_another_order(played, random):
    size, told = played
    to = random.sample(range(size), size)
    strengths = bradley_terry(size, told)
    moved = bradley_terry(
        size, random.sample([Game(to[i], to[j], r) for i, j, r in told], len(told))
    )
    assert [moved[to[i]] for i in range(size)] == strengths


@settings(max_examples=40)
@given(round_robins())
def test_where_all_pairs_met_more_wins_are_more_strength(played):
    size, told = played
    wins = [0.0] * size
    for i, j, result in told:
        wins[i] += result
        wins[j] += 1 - result
    strengths = bradley_terry(size, told)
    for i, j in combinations(range(size), 2):
        assert (strengths[i] > strengths[j]) == (wins[i] > wins[j])
        assert (strengths[i] == strengths[j]) == (wins[i] == wins[j])


@settings(max_examples=40)
@given(games(least=1))
def test_at_the_strengths_each_member_has_won_as_much_as_is_expected(played):
    """The likelihood's own condition, which says nothing of how it was reached."""
    size, told = played
    p = bradley_terry(size, told)
    for i in range(size):
        mine = [g for g in told if i in (g.first, g.second)]
        draws = 0.25 * len(mine) or 1.0
        won = draws / 2 + sum(g.result if g.first == i else 1 - g.result for g in mine)
        expected = draws * p[i] / (p[i] + 1)
        expected += sum(p[i] / (p[g.first] + p[g.second]) for g in mine)
        assert won == pytest.approx(expected, abs=1e-4)


@settings(max_examples=40)
@given(games(), st.data())
def test_a_win_more_is_never_less_strength(played, data):
    size, told = played
    i = data.draw(st.integers(0, size - 1))
    j = data.draw(st.integers(0, size - 1).filter(lambda other: other != i))
    better = bradley_terry(size, [*told, Game(i, j, 1.0)])
    worse = bradley_terry(size, [*told, Game(i, j, 0.0)])
    assert better[i] > worse[i]


@given(st.integers(2, 17), st.integers(1, 18))
def test_each_member_meets_as_many_others_as_asked_and_none_twice(size, rounds):
    pairs = pairings(size, rounds)
    assert len(set(pairs)) == len(pairs)
    assert all(0 <= i < j < size for i, j in pairs)
    met = Counter(member for pair in pairs for member in pair)
    wanted = min(rounds, size - 1)
    assert set(met.values()) <= {wanted, wanted + size % 2}
    assert len(met) == size


@given(st.integers(2, 17), st.integers(2, 18))
def test_from_two_rounds_on_the_pairs_connect_all_members(size, rounds):
    reached, pairs = {0}, pairings(size, rounds)
    for _ in range(size):
        reached |= {m for pair in pairs if reached & set(pair) for m in pair}
    assert reached == set(range(size))


@given(st.integers(2, 60), st.integers(3, 20))
def test_windows_show_all_members_and_share_the_first_two(size, most):
    shown = windows(size, most)
    assert set().union(*shown) == set(range(size))
    assert all(2 <= len(window) <= most and len(set(window)) == len(window) for window in shown)
    assert all(window[:2] == [0, 1] for window in shown)
    assert max(map(len, shown)) - min(map(len, shown)) <= 1


@given(st.lists(st.text(max_size=5), min_size=1, max_size=8), st.randoms())
def test_the_order_of_responses_depends_on_their_set_alone(texts, random):
    assert by_content(texts) == by_content(random.sample(texts, len(texts)) + texts)


def test_the_order_of_two_responses_depends_on_their_siblings_too():
    """So that no response can learn to be shown first."""
    firsts = {by_content(["a", "b", sibling]).index("a") for sibling in "cdefghijkl"}
    assert firsts == {0, 1, 2}


def values(matches, copies, by="wins", quorum=0.5):
    return [
        s.value if not isinstance(s, Abstain) else s
        for s in rank_responses(matches, copies, by=by, quorum=quorum)
    ]


def test_a_value_is_the_share_of_siblings_that_are_beaten_and_a_tie_counts_half():
    matches = [Match(0, 1, 1.0), Match(0, 2, 0.5), Match(1, 2, 0.0)]
    assert values(matches, [1, 1, 1]) == [0.75, 0.0, 0.75]


def test_copies_tie_with_each_other_and_share_their_value():
    assert values([Match(0, 1, 1.0)], [3, 1]) == [pytest.approx(2 / 3), 0.0]


def test_a_failed_comparison_is_left_out_for_both():
    matches = [Match(0, 1, LATE), Match(0, 2, 1.0), Match(1, 2, 1.0)]
    assert values(matches, [1, 1, 1]) == [1.0, 1.0, 0.0]


def test_a_response_without_its_quorum_of_comparisons_abstains_with_the_reason():
    matches = [Match(0, 1, LATE), Match(0, 2, LATE), Match(1, 2, 1.0)]
    first, second, third = rank_responses(matches, [1, 1, 1], by="wins", quorum=0.5)
    assert first.kind is FailureKind.TIMEOUT
    assert first.detail == "0 of 2 comparisons reached a verdict, quorum 0.5; no answer in 60 s"
    assert (second.value, third.value) == (1.0, 0.0)
    assert all(
        isinstance(s, Abstain) for s in rank_responses(matches, [1, 1, 1], by="wins", quorum=1.0)
    )


def test_the_share_of_comparisons_in_which_answers_disagreed_is_told():
    matches = [Match(0, 1, 0.5, agreed=False), Match(0, 2, 1.0), Match(1, 2, LATE)]
    told = [s.inconsistent for s in rank_responses(matches, [1, 1, 1], by="wins", quorum=0.5)]
    assert told == [0.5, 1.0, 0.0]


@settings(max_examples=40)
@given(round_robins())
def test_over_all_pairs_both_ways_of_counting_give_one_order(played):
    size, told = played
    matches = [Match(*game) for game in told]
    wins = values(matches, [1] * size)
    expected = values(matches, [1] * size, by="bradley_terry")
    for i, j in combinations(range(size), 2):
        if wins[i] > wins[j]:
            assert expected[i] > expected[j]
    assert sum(wins) == pytest.approx(size / 2)
    assert sum(expected) == pytest.approx(size / 2)


def test_bradley_terry_asks_who_was_met_where_wins_does_not():
    """1 and 4 have each won one of two; 1 lost to the best, 4 to the worst."""
    matches = [
        Match(0, 1, 1.0),
        Match(0, 3, 1.0),
        Match(1, 2, 1.0),
        Match(2, 4, 1.0),
        Match(3, 4, 0.0),
        Match(3, 2, 0.0),
    ]
    wins = values(matches, [1] * 5)
    expected = values(matches, [1] * 5, by="bradley_terry")
    assert wins[1] == wins[4] == 0.5
    assert expected[1] > expected[4]


def test_two_windows_that_disagree_about_the_anchors_make_them_a_tie():
    orders = [
        Score(1.0, "", {"order": [[0], [1], [2]]}),
        Score(0.0, "", {"order": [[2], [1], [0]]}),
    ]
    found = {(m.first, m.second): m for m in ranked_matches([[0, 1, 2], [0, 1, 3]], orders)}
    assert found[0, 1] == Match(0, 1, 0.5, agreed=False)
    assert found[0, 2] == Match(0, 2, 1.0)
    assert found[0, 3] == Match(0, 3, 0.0)
    assert (2, 3) not in found


def test_a_window_that_failed_leaves_what_the_other_says_about_the_anchors():
    found = ranked_matches([[0, 1, 2], [0, 1, 3]], [Score(1.0, "", {"order": [[0], [1, 2]]}), LATE])
    results = {(m.first, m.second): m.result for m in found}
    assert results == {(0, 1): 1.0, (0, 2): 1.0, (1, 2): 0.5, (0, 3): LATE, (1, 3): LATE}
