"""Two rewards of the same samples: what is compared, and that no failure counts as a number."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.observe import RewardedSample, compare, joined
from zerowait.rank_statistics import kendall_tau
from zerowait.types import Abstain, Score, Skipped


def row(value, group="g", **fields):
    fields.setdefault("text", str(fields.get("id", value)))
    return RewardedSample(value=value, group=group and ("train", 1, group), **fields)


def pairs(a, b, groups=None):
    groups = groups or ["g"] * len(a)
    return [
        (row(x, group, id=str(at)), row(y, group, id=str(at)))
        for at, (x, y, group) in enumerate(zip(a, b, groups, strict=True))
    ]


def tau_of_all_pairs(one, other):
    """Kendall's tau-b by looking at every pair."""
    found = [
        ((x > u) - (x < u), (y > v) - (y < v))
        for (x, y), (u, v) in combinations(zip(one, other, strict=True), 2)
    ]
    untied = [sum(bool(pair[side]) for pair in found) for side in (0, 1)]
    if not all(untied):
        return None
    return sum(x * y for x, y in found) / (untied[0] * untied[1]) ** 0.5


numbers = st.integers(0, 4).map(float)


@given(st.lists(st.tuples(numbers, numbers), max_size=12))
def test_kendall_is_what_looking_at_every_pair_gives(values):
    one, other = [a for a, _ in values], [b for _, b in values]
    found, expected = kendall_tau(one, other), tau_of_all_pairs(one, other)
    assert (found is None) == (expected is None)
    assert found == pytest.approx(expected)


@given(st.lists(numbers, min_size=2, max_size=8), st.floats(0.1, 9), st.floats(-5, 5))
def test_another_scale_is_no_disagreement(values, factor, shift):
    found = compare(pairs(values, [factor * value + shift for value in values]))
    assert (found.signs.flipped, found.signs.vanished, found.signs.appeared) == (0, 0, 0)
    assert found.worst == []


def test_advantages_flip_where_a_row_crosses_the_mean_of_its_own_group():
    before = [0.0, 1.0, 0.0, 1.0, 0.0, 10.0]
    after = [1.0, 0.0, 0.0, 1.0, 5.0, 5.0]
    found = compare(pairs(before, after, ["a", "a", "b", "b", "c", "c"])).signs
    assert (found.rows, found.groups, found.flipped) == (6, 3, 2)
    assert (found.vanished, found.appeared, found.flat_a, found.flat_b) == (2, 0, 0, 1)


def test_the_same_group_name_in_another_step_is_another_group():
    a = [row(0.0, id="1"), row(1.0, id="2")]
    later = [
        RewardedSample(value=v, group=("train", 2, "g"), id=i) for v, i in ((5.0, "3"), (6.0, "4"))
    ]
    found = compare([(each, each) for each in [*a, *later]])
    assert found.signs.groups == 2


def test_an_abstention_is_no_number_on_either_side():
    found = compare(pairs([None, 1.0, None, 2.0], [1.0, None, None, 2.0]))
    reward = found.reward
    assert (reward.both, reward.only_a, reward.only_b, reward.neither) == (1, 1, 1, 1)
    assert (reward.mean_a, reward.mean_b, reward.mean_difference) == (2.0, 2.0, 0.0)
    assert found.signs.groups == 0  # one row of the group is known on both sides
    assert [(each.a, each.b) for each in found.worst] == [(None, 1.0), (1.0, None)]


def test_each_side_s_advantage_is_about_the_mean_of_the_rows_that_it_has():
    found = compare(pairs([0.0, 1.0, 9.0], [0.0, 1.0, None]))
    assert (found.signs.rows, found.signs.flipped) == (2, 1)  # 1.0: below 3.33, above 0.5


def test_nothing_in_common_has_no_statistic_instead_of_0():
    reward = compare(pairs([None, 1.0], [2.0, None])).reward
    assert {reward.mean_a, reward.mean_difference, reward.spearman, reward.kendall} == {None}


def test_components_are_compared_one_by_one_and_failures_by_kind():
    a = row(1.0, components={"rule": Score(1.0), "judge": Score(4.0)}, id="1")
    b = row(0.0, components={"rule": Skipped("gate"), "judge": Abstain("timeout", "60 s")}, id="1")
    other = row(0.5, components={"rule": Score(1.0), "judge": Score(4.0)}, id="2")
    found = compare([(a, b), (other, other)])
    assert (found.components["judge"].both, found.components["judge"].only_a) == (1, 1)
    worst = found.worst[0]
    assert worst.changed == ["rule: 1 -> skipped", "judge: 4 -> timeout"]


def test_a_row_with_the_same_value_is_no_disagreement_although_others_passed_it():
    found = compare(pairs([1.0, 2.0, 2.0, 2.0], [1.0, 0.5, 0.5, 2.0]), worst=9)
    assert sorted(each.id for each in found.worst) == ["1", "2"]


def test_the_worst_disagreements_are_those_of_rank():
    found = compare(pairs([1.0, 2.0, 3.0, 4.0], [2.0, 4.0, 100.0, 1.0]), worst=1)
    assert [(each.id, each.rank_a, each.rank_b) for each in found.worst] == [("3", 4.0, 1.0)]


def test_a_component_that_one_side_lacks_has_no_value_there():
    a = row(1.0, components={"old": Score(1.0)}, id="1")
    b = row(1.0, components={"new": Score(2.0)}, id="1")
    found = compare([(a, b)]).components
    assert (found["old"].only_a, found["new"].only_b) == (1, 1)


def test_samples_are_joined_by_the_name_that_finds_most_and_repeats_in_their_order():
    a = [row(1.0, id="x", text="p"), row(2.0, text="q"), row(3.0, text="q")]
    b = [row(10.0, text="q"), row(20.0, text="q"), row(30.0, text="z"), row(40.0, id="x", text="p")]
    found = joined(a, b)
    assert (found.by, found.only_a, found.only_b) == ("text", 0, 1)
    assert [(x.value, y.value) for x, y in found.pairs] == [(1.0, 40.0), (2.0, 10.0), (3.0, 20.0)]


def test_rows_under_one_id_are_joined_by_their_texts():
    """The ids of a data set name prompts: each response to one has the same."""
    a = [row(1.0, id="1", text="p"), row(2.0, id="1", text="q")]
    found = joined(a, list(reversed(a)))
    assert [(x.value, y.value) for x, y in found.pairs] == [(1.0, 1.0), (2.0, 2.0)]
    assert found.other_response == 0


def test_a_repeated_id_without_texts_joins_nothing():
    a = [row(1.0, id="1", text=""), row(2.0, id="1", text="")]
    assert joined(a, list(reversed(a))).pairs == []


def test_two_samples_under_one_id_are_told_apart():
    found = joined([row(1.0, id="1", text="p")], [row(1.0, id="1", text="q")])
    assert (found.by, found.other_response) == ("id", 1)


def test_ids_that_name_other_samples_on_the_other_side_join_nothing():
    a = [row(1.0, id="1", text="p"), row(2.0, id="2", text="q")]
    b = [row(10.0, id="1", text="q"), row(20.0, id="2", text="p")]
    found = joined(a, b)
    assert (found.by, found.other_response) == ("text", 0)
    assert [(x.value, y.value) for x, y in found.pairs] == [(1.0, 20.0), (2.0, 10.0)]


def test_nothing_in_common_is_joined_by_nothing():
    found = joined([row(1.0, text="p")], [row(1.0, text="q")])
    assert (found.pairs, found.by, found.only_a, found.only_b) == ([], None, 1, 1)
