"""What holds for every group."""

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from zerowait.shaping import (
    GroupView,
    group_linear,
    kimi_length_reward,
    lcpo_exact,
    lcpo_max,
    median_band,
    repetition,
    resolve_shape,
    soft_overlong,
)

group_lengths = st.lists(st.integers(0, 40_000), min_size=1, max_size=16)
ratios = st.tuples(st.integers(0, 150), st.integers(1, 150)).map(
    lambda pair: (pair[0] / 100, (pair[0] + pair[1]) / 100)
)
scores = st.floats(-1, 2)


def slow_band(lengths, peak, outer, most):
    """The rule of the specification, read aloud, in exact numbers."""
    peak, outer, most = (Fraction(str(number)) for number in (peak, outer, most))
    ordered = sorted(lengths)
    half = len(ordered) // 2
    middle = Fraction(ordered[half])
    if len(ordered) % 2 == 0:
        middle = (middle + ordered[half - 1]) / 2
    penalties = []
    for length in lengths:
        if middle == 0 or middle * (1 - peak) <= length <= middle * (1 + peak):
            penalties.append(Fraction(0))
        elif length < middle * (1 - outer) or length > middle * (1 + outer):
            penalties.append(most)
        else:
            away = abs(length - middle) - peak * middle
            penalties.append(most * away / ((outer - peak) * middle))
    return [float(penalty) for penalty in penalties]


@given(group_lengths, ratios, st.integers(0, 5))
def test_the_band_agrees_with_an_exact_and_slow_version(lengths, ratio, most):
    peak, outer = ratio
    found = median_band(lengths, peak_ratio=peak, outer_ratio=outer, max_penalty=most)
    assert found == pytest.approx(slow_band(lengths, peak, outer, most), abs=1e-7)


@given(group_lengths, ratios)
def test_a_band_penalty_stays_in_its_bounds(lengths, ratio):
    peak, outer = ratio
    found = median_band(lengths, peak_ratio=peak, outer_ratio=outer, max_penalty=0.7)
    assert all(0 <= penalty <= 0.7 for penalty in found)


@given(group_lengths, st.randoms(use_true_random=False))
def test_a_band_penalty_belongs_to_the_length_and_not_to_its_place(lengths, random):
    order = list(range(len(lengths)))
    random.shuffle(order)
    found = median_band(lengths)
    assert median_band([lengths[i] for i in order]) == [found[i] for i in order]


@given(group_lengths, st.integers(1, 50))
def test_a_band_does_not_change_when_all_lengths_are_scaled(lengths, factor):
    scaled = median_band([length * factor for length in lengths])
    assert scaled == pytest.approx(median_band(lengths), abs=1e-9)


@given(group_lengths)
def test_farther_from_the_median_never_costs_less(lengths):
    ordered = sorted(lengths)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    pairs = sorted(zip((abs(n - middle) for n in lengths), median_band(lengths), strict=True))
    penalties = [penalty for _, penalty in pairs]
    assert penalties == sorted(penalties)


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(1, 5_000), st.data())
def test_a_longer_response_is_never_penalised_less_by_the_overlong_rule(n, extra, limit, data):
    buffer = data.draw(st.integers(1, limit))
    shorter = soft_overlong(n, limit=limit, buffer=buffer)
    longer = soft_overlong(n + extra, limit=limit, buffer=buffer)
    assert 0 <= shorter <= longer <= 1


@given(st.lists(st.tuples(st.integers(0, 40_000), st.booleans()), min_size=1, max_size=16))
def test_kimi_s_reward_stays_in_its_bounds_and_falls_with_length(members):
    lengths, correct = zip(*members, strict=True)
    rewards = kimi_length_reward(lengths, correct)
    assert all(-0.5 <= reward <= 0.5 for reward in rewards)
    assert all(reward <= 0 for reward, right in zip(rewards, correct, strict=True) if not right)
    for kind in (True, False):
        same = sorted(
            (n, -r) for n, r, c in zip(lengths, rewards, correct, strict=True) if c == kind
        )
        losses = [loss for _, loss in same]
        assert losses == sorted(losses)


@given(st.lists(st.tuples(st.integers(0, 40_000), scores), min_size=1, max_size=16), st.booleans())
def test_the_linear_penalty_stays_in_its_bounds(members, only_correct):
    lengths, rule_scores = zip(*members, strict=True)
    found = group_linear(lengths, rule_scores, coefficient=0.3, only_correct=only_correct)
    assert all(0 <= penalty <= 0.3 for penalty in found)


@given(st.integers(0, 9_999), st.integers(0, 9_999), st.booleans())
def test_the_cosine_reward_moves_one_way_between_its_ends(one, other, correct):
    shape = resolve_shape("cosine", {"limit": 10_000})
    short, long = sorted((one, other))
    first, last = shape.reward(short, correct=correct), shape.reward(long, correct=correct)
    if correct:
        assert 2 >= first >= last >= 1
    else:
        assert -10 <= first <= last <= 0


@given(st.integers(0, 40_000), st.integers(1, 40_000), st.floats(0, 2), st.integers(0, 40_000))
def test_the_lcpo_penalties_stay_in_their_bounds(length, target, score, other):
    assert lcpo_exact(length, target) >= 0
    assert 0 <= lcpo_max(length, target, score) <= score
    assume(other >= length)
    assert lcpo_max(other, target, score) >= lcpo_max(length, target, score)


@given(st.lists(st.sampled_from("abcd"), max_size=40), st.integers(1, 5))
def test_the_repeated_share_agrees_with_a_count_by_hand(words, ngram):
    grams = [tuple(words[i : i + ngram]) for i in range(len(words) - ngram + 1)]
    repeated = sum(gram in grams[:i] for i, gram in enumerate(grams))
    expected = repeated / len(grams) if grams else 0
    assert repetition(" ".join(words), ngram=ngram) == pytest.approx(expected)


@given(
    st.lists(st.tuples(st.integers(0, 9_999), st.none() | scores, st.none() | st.integers(1, 99))),
    st.sampled_from(["median_band", "group_linear", "kimi", "lcpo_exact", "lcpo_max"]),
)
def test_a_shape_answers_once_per_member_with_finite_numbers(members, name):
    lengths, rule_scores, targets = zip(*members, strict=True) if members else ((), (), ())
    group = GroupView(lengths, rule_scores, targets, ["x"] * len(lengths))
    assert len(resolve_shape(name, {}).penalties(group)) == len(members)
