"""The other shapes, and the table."""

import math

import msgspec
import numpy as np
import pytest

from zerowait.errors import ConfigError, DataError
from zerowait.shaping import (
    SHAPES,
    GroupView,
    group_linear,
    hard_cap,
    kimi_length_reward,
    lcpo_exact,
    lcpo_max,
    repetition,
    resolve_shape,
    soft_overlong,
)
from zerowait.types import Abstain, Sample, Score

NEEDS = {"cosine": {"limit": 100}, "hard_cap": {"limit": 100}}
NEEDS["soft_overlong"] = {"limit": 100, "buffer": 20}


def values(name, options, **group):
    outcomes = resolve_shape(name, options).penalties(GroupView(**group))
    return [outcome.value if isinstance(outcome, Score) else None for outcome in outcomes]


def test_soft_overlong_rises_over_the_buffer_and_stops_at_one():
    """verl's own goes on falling; a response of twice the limit would cost -6 here."""
    penalties = [soft_overlong(n, limit=100, buffer=20) for n in (0, 80, 85, 100, 101, 200)]
    assert penalties == [0, 0, 0.25, 1, 1, 1]
    options = {"limit": 100, "buffer": 20, "max_penalty": 2.0}
    assert values("soft_overlong", options, lengths=[80, 90, 300, None]) == [0, -1, -2, None]


def test_a_hard_cap_costs_only_beyond_the_limit():
    assert [hard_cap(n, limit=100) for n in (0, 100, 101)] == [0, 0, 1]
    assert values("hard_cap", {"limit": 100}, lengths=[100, 101, None]) == [0, -1, None]


@pytest.mark.parametrize(
    ("lengths", "scores", "only_correct", "penalties"),
    [
        ([100, 50], [1, 1], False, [0.25, 0.125]),
        ([100, 50], [1, 0], False, [0.125, 0.0625]),
        ([100, 50], [1, 0], True, [0.125, 0]),
        ([100, 50], [0, 0], False, [0, 0]),
        ([100, 50], [-1, -1], False, [0, 0]),
        ([100, 50], [None, 1], False, [0.25, 0.125]),
        ([100, 50], [None, None], False, [0, 0]),
        ([100, 50], [7, 7], False, [0.25, 0.125]),
        ([0, 0], [1, 1], False, [0, 0]),
        ([], [], False, []),
    ],
)
def test_the_linear_penalty_scales_with_the_pass_rate(lengths, scores, only_correct, penalties):
    assert group_linear(lengths, scores, only_correct=only_correct) == pytest.approx(penalties)


def test_the_linear_shape_abstains_where_the_rules_did():
    group = {"lengths": [100, 50], "rule_scores": [1.0, None]}
    assert values("group_linear", {"coefficient": 0.5}, **group) == [-0.5, None]
    assert values("group_linear", {}, lengths=[100, None], rule_scores=[1, 1]) == [None, None]


def test_kimi_s_reward_prefers_short_and_never_pays_a_wrong_answer():
    assert kimi_length_reward([100, 150, 200], [True] * 3) == [0.5, 0, -0.5]
    assert kimi_length_reward([100, 150, 200], [False] * 3) == [0, 0, -0.5]
    assert kimi_length_reward([100, 100], [True, False]) == [0, 0]
    assert kimi_length_reward([], []) == []
    group = {"lengths": [100, 200, 150], "rule_scores": [1.0, 0.0, None]}
    assert values("kimi", {}, **group) == [0.5, -0.5, None]


def test_the_cosine_reward_has_the_published_values():
    group = {"lengths": [0, 50, 0, 50, 100, 99], "rule_scores": [1, 1, 0, 0, 1, None]}
    assert values("cosine", {"limit": 100}, **group) == pytest.approx([2, 1.5, -10, -5, -10, None])


def test_lcpo_exact_pays_for_each_token_off_the_target():
    assert lcpo_exact(900, 1000, alpha=0.001) == lcpo_exact(1100, 1000, alpha=0.001) == 0.1
    group = {"lengths": [900, 900, 900, 900], "targets": [1000, None, "1000", True]}
    assert values("lcpo_exact", {"alpha": 0.001}, **group) == [-0.1, None, None, None]


def test_lcpo_exact_has_no_bound_but_the_one_that_is_asked_for():
    group = {"lengths": [9000, 900], "targets": [1000, 1000]}
    assert values("lcpo_exact", {"alpha": 0.001}, **group) == [-8, -0.1]
    assert values("lcpo_exact", {"alpha": 0.001, "max_penalty": 1.0}, **group) == [-1, -0.1]


def test_a_target_may_be_numpy_s_number_and_one_beyond_a_float_is_none():
    group = {"lengths": [900] * 3, "targets": [np.int64(1000), np.float32(1000), 10**400]}
    assert values("lcpo_exact", {"alpha": 0.001}, **group) == [-0.1, -0.1, None]


def test_lcpo_max_leaves_the_published_product():
    for length in (0, 400, 1000, 1400, 5000):
        for score in (1.0, 0.5, 0.0, -1.0):
            factor = min(max(0.001 * (1000 - length) + 0.5, 0), 1)
            left = score - lcpo_max(length, 1000, score, alpha=0.001)
            assert left == pytest.approx(score * factor if score > 0 else score)
    group = {"lengths": [1000, 1000], "targets": [1000, 1000], "rule_scores": [1.0, None]}
    assert values("lcpo_max", {}, **group) == [-0.5, None]


def test_repetition_is_the_share_of_n_grams_that_were_there_before():
    assert repetition("a b c d") == repetition("a b") == repetition("") == 0
    assert repetition("a b a b a b", ngram=2) == pytest.approx(1 - 2 / 5)
    assert repetition("A a a a", ngram=1) == 0.75
    group = {"lengths": [4, None], "responses": ["a a a a", "a b"]}
    assert values("repetition", {"ngram": 1, "max_penalty": 2.0}, **group) == [-1.5, 0]
    assert values("repetition", {}, lengths=[4]) == [None]


def test_every_shape_answers_once_per_member_and_abstains_without_lengths():
    for name in SHAPES:
        shape = resolve_shape(name, NEEDS.get(name, {}))
        group = GroupView([None, None], [1.0, 1.0], [10, 10], ["a", "b"])
        outcomes = shape.penalties(group)
        assert len(outcomes) == 2
        if name != "repetition":
            assert all(isinstance(outcome, Abstain) for outcome in outcomes)
        assert isinstance(shape.needs_scores, bool)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("median_bnad", {}, "there is no shape 'median_bnad'; did you mean 'median_band'?"),
        ("zzz", {}, "known: cosine, group_linear"),
        ("median_band", {"peak_rato": 0.2}, "did you mean 'peak_ratio'?"),
        ("median_band", {"needs_scores": True}, "has no parameter 'needs_scores'"),
        ("median_band", {"outer_ratio": 0.3}, "outer_ratio must be greater than peak_ratio"),
        ("median_band", {"peak_ratio": "0.2"}, "peak_ratio must be a number, not text"),
        ("hard_cap", {}, "hard_cap: needs the key 'limit'"),
        ("hard_cap", {"limit": 0}, "limit must be greater than 0"),
        ("hard_cap", {"limit": 10.5}, "limit must be a whole number"),
        ("hard_cap", {"limit": 10, "max_penalty": float("inf")}, "must be a finite number"),
        ("soft_overlong", {"limit": 10, "buffer": 20}, "buffer must be from 1 to limit (10)"),
        ("soft_overlong", {"limit": 10, "buffer": 0}, "buffer must be from 1 to limit"),
        ("cosine", {"limit": 0}, "limit must be greater than 0"),
        ("group_linear", {"coefficient": -1}, "coefficient must not be negative"),
        ("kimi", {"corect": 1}, "kimi has no parameter 'corect'; did you mean 'correct'?"),
        ("lcpo_exact", {"alpha": 0}, "alpha must be greater than 0"),
        ("lcpo_exact", {"max_penalty": -1}, "max_penalty must not be negative"),
        ("lcpo_max", {"delta": 2}, "delta must be in [0, 1]"),
        ("repetition", {"ngram": 0}, "ngram must be greater than 0"),
    ],
)
def test_a_wrong_shape_says_what_to_change(name, options, message):
    with pytest.raises(ConfigError) as caught:
        resolve_shape(name, options)
    assert message in str(caught.value)


def refusal_of(name, options):
    try:
        resolve_shape(name, options)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("length", [math.nan, math.inf, -math.inf, -1, 0.5, "5"])
def test_what_is_no_length_is_no_length_of_a_sample_or_a_group(length):
    """A NaN would pass every comparison and end in a penalty that no setting asked for."""
    with pytest.raises(DataError, match="response_tokens must be at least 0 and a whole number"):
        Sample("", "a", response_tokens=length)
    with pytest.raises(ValueError, match="lengths are whole numbers of tokens"):
        GroupView(lengths=[5, length])


@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_what_is_no_rule_score_is_none_of_a_group(score):
    with pytest.raises(ValueError, match="rule_scores has a"):
        GroupView(lengths=[5, 6], rule_scores=[1.0, score])


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 10**400, 1e300, -1, True, "1", [1]]
)
def test_a_parameter_of_any_shape_is_refused_by_name_or_gives_finite_penalties(name, value):
    group = GroupView(
        lengths=[0, 1, 50, 10**6, 2**53],
        rule_scores=[1.0, 0.0, -1.0, 5.0, 1e20],
        targets=[100, 1, 50, 10**6, 1e-300],
        responses=["a b a b"] * 5,
    )
    for field in msgspec.structs.fields(SHAPES[name]):
        options = NEEDS.get(name, {}) | {field.name: value}
        refusal = refusal_of(name, options)
        if refusal:
            assert refusal.startswith(f"{name}: ")
            assert field.name in refusal
        else:
            outcomes = resolve_shape(name, options).penalties(group)
            assert all(isinstance(outcome, Score) for outcome in outcomes)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(
    "lengths", [[], [0], [5], [0, 0], [5, 5, 5], [0, 5], [1, 2, 3, 1000, 1000]]
)
@pytest.mark.parametrize("right", [1.0, 0.0])
def test_groups_of_one_of_equals_and_of_nothing_have_a_finite_penalty_for_each(
    name, lengths, right
):
    size = len(lengths)
    shape = resolve_shape(name, NEEDS.get(name, {}))
    outcomes = shape.penalties(GroupView(lengths, [right] * size, [5] * size, ["a"] * size))
    assert len(outcomes) == size
    assert all(isinstance(outcome, Score) for outcome in outcomes)
    if len(set(lengths)) <= 1 and name in ("median_band", "kimi", "repetition"):
        assert all(outcome.value == 0 for outcome in outcomes)


def test_a_group_s_sequences_belong_together():
    with pytest.raises(ValueError, match="a group of 2 has 1 rule_scores"):
        GroupView(lengths=[1, 2], rule_scores=[1.0])
