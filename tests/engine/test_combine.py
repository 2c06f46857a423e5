import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.config import FailurePolicy, Value
from zerowait.engine.combine import ExtraNumbers, Term, combine, policy_for, settle_groups
from zerowait.errors import JudgementError
from zerowait.types import Abstain, FailureKind, Reward, Score, Skipped

TERMS = [Term("answer", 1.0), Term("quality", 0.5)]
FAILED = Abstain("timeout", "no answer in 60 s")


def test_a_reward_is_the_weighted_sum_of_its_components():
    reward = combine({"answer": Score(1.0), "quality": Score(7.0)}, TERMS, FailurePolicy())
    assert reward.value == 4.5


def test_a_skipped_component_contributes_nothing_and_abstains_nothing():
    reward = combine({"answer": Score(1.0), "quality": Skipped("gate")}, TERMS, FailurePolicy())
    assert reward.value == 1.0
    assert reward.policy == ""


@pytest.mark.parametrize("kind", list(FailureKind))
def test_no_kind_of_failure_becomes_a_number_that_nobody_chose(kind):
    outcomes = {"answer": Score(1.0), "quality": Abstain(kind, "x")}
    reward = combine(outcomes, TERMS, FailurePolicy())
    assert reward.value is None
    assert reward.policy == "neutral"
    assert kind.value in reward.why


def test_weights_are_not_renormalised_over_the_survivors():
    """The row would be punished for the judge's failure: 1.0 of a possible 6.0."""
    assert combine({"answer": Score(1.0), "quality": FAILED}, TERMS, FailurePolicy()).value is None


def test_an_explicit_value_counts_as_the_components_score():
    policy = FailurePolicy(kinds={FailureKind.TIMEOUT: Value(2.0)})
    reward = combine({"answer": Score(1.0), "quality": FAILED}, TERMS, policy)
    assert reward.value == 2.0


def test_raise_raises_and_names_the_component():
    with pytest.raises(JudgementError, match="quality: timeout: no answer in 60 s"):
        combine({"answer": Score(1.0), "quality": FAILED}, TERMS, FailurePolicy(default="raise"))


def test_the_most_severe_policy_of_several_failures_counts():
    policy = FailurePolicy(kinds={FailureKind.REFUSED: "mask"})
    outcomes = {"answer": FAILED, "quality": Abstain("refused", "no")}
    assert combine(outcomes, TERMS, policy).policy == "mask"


@given(st.sampled_from(list(FailureKind)), st.booleans())
def test_a_shadow_component_can_neither_change_nor_abstain_a_reward(kind, fails):
    shadow = Abstain(kind, "x") if fails else Score(9.0)
    reward = combine(
        {"answer": Score(1.0), "quality": shadow},
        [Term("answer", 1.0), Term("quality", 0.0)],
        FailurePolicy(default="raise"),
    )
    assert reward.value == 1.0
    assert reward.components["quality"] == shadow


def test_the_components_own_policy_comes_before_the_kinds_and_the_default():
    policy = FailurePolicy(
        default="mask",
        kinds={FailureKind.TIMEOUT: "drop_group"},
        components={"quality": FailurePolicy(kinds={FailureKind.TIMEOUT: "raise"})},
    )
    assert policy_for(policy, "quality", FAILED) == "raise"
    assert policy_for(policy, "answer", FAILED) == "drop_group"
    assert policy_for(policy, "answer", Abstain("refused")) == "mask"


def test_metrics_have_the_same_names_whatever_happened():
    names = [
        sorted(combine({"answer": Score(1.0), "quality": outcome}, TERMS, FailurePolicy()).metrics)
        for outcome in (Score(1.0), Skipped("x"), FAILED)
    ]
    assert names[0] == names[1] == names[2]


OUTCOME = st.one_of(
    st.floats(-1e6, 1e6).map(Score),
    st.sampled_from(list(FailureKind)).map(Abstain),
    st.just(Skipped("x")),
)


@given(OUTCOME, OUTCOME)
def test_a_reward_is_a_finite_number_exactly_when_nothing_abstained(answer, quality):
    reward = combine({"answer": answer, "quality": quality}, TERMS, FailurePolicy())
    failed = isinstance(answer, Abstain) or isinstance(quality, Abstain)
    measured = isinstance(answer, Score) or isinstance(quality, Score)
    assert (reward.value is None) is (failed or not measured)
    assert reward.value is None or math.isfinite(reward.value)


NO_SIBLING = Skipped("there is no sibling to compare it with")
OTHER_SOURCE = Skipped("not for data source 'b'")
GATED = Skipped("gate 'answer > 0' is closed")
SHADOWED = [Term("answer", 0.0), Term("quality", 0.5, (), "judge")]


@pytest.mark.parametrize(
    ("terms", "answer", "quality", "value"),
    [
        (TERMS, OTHER_SOURCE, NO_SIBLING, None),
        (TERMS, OTHER_SOURCE, OTHER_SOURCE, None),
        (TERMS, OTHER_SOURCE, GATED, None),
        (TERMS, Score(0.0), NO_SIBLING, 0.0),
        (TERMS, Score(1.0), NO_SIBLING, 1.0),
        (TERMS, OTHER_SOURCE, Score(4.0), 2.0),
        (TERMS, Score(1.0), GATED, 1.0),
        (SHADOWED, Score(1.0), NO_SIBLING, None),
        (SHADOWED, Score(1.0), OTHER_SOURCE, None),
        (SHADOWED, Score(0.0), GATED, 0.0),  # the gate is the user's word for 0
        ([Term("answer", 0.0), Term("quality", 0.0)], Score(1.0), NO_SIBLING, 0.0),
    ],
)
def test_a_sample_that_no_component_measured_has_no_value(terms, answer, quality, value):
    reward = combine({"answer": answer, "quality": quality}, terms, FailurePolicy())
    assert reward.value == value
    assert reward.policy == ("neutral" if value is None else "")
    assert quality.why in reward.why if value is None else not reward.why


def test_further_numbers_of_a_rule_are_metrics_and_nothing_else_is():
    detail = {"acc": 1, "nan": math.nan, "inf": math.inf, "text": "x", "list": [1], "ok": True}
    outcomes = {"answer": Score(1.0, "", detail), "quality": Score(7.0, "", {"verdict": 7})}
    terms = [Term("answer", 1.0), Term("quality", 0.5, (), "judge")]
    metrics = combine(outcomes, terms, FailurePolicy()).metrics
    numbers = {k: v for k, v in metrics.items() if k.split("/")[1] not in ("scored", "abstained")}
    assert numbers == {"answer/acc": 1, "answer/nan": None, "answer/inf": None, "answer/ok": 1}


def test_a_further_number_does_not_take_the_name_of_a_metric():
    outcomes = {"answer": Score(1.0, "", {"scored": 7, "abstained": 7}), "quality": Score(1.0)}
    metrics = combine(outcomes, TERMS, FailurePolicy()).metrics
    assert (metrics["answer/scored"], metrics["answer/abstained"]) == (1, 0)


def test_made_up_names_do_not_fill_the_memory():
    extra = ExtraNumbers(TERMS)
    rewards = []
    for number in range(1000):
        outcomes = {"answer": Score(1.0, "", {f"n{number}": 1}), "quality": Score(1.0)}
        rewards.append(extra.filled(combine(outcomes, TERMS, FailurePolicy())))
    assert len(rewards[-1].metrics) == 64
    assert extra.filled(rewards[0]).metrics.keys() == rewards[-1].metrics.keys()


def test_made_up_names_of_a_rule_push_no_metric_of_a_judge_out():
    terms = [Term("answer", 1.0), Term("quality", 0.5, ("agreement",), "judge")]
    outcomes = {
        "answer": Score(1.0, "", {f"n{number}": 1 for number in range(100)}),
        "quality": Score(1.0, "", {"measured": {"agreement": 0.8}}),
    }
    reward = ExtraNumbers(terms).filled(combine(outcomes, terms, FailurePolicy()))
    assert reward.metrics["quality/agreement"] == 0.8
    assert sum(name.startswith("answer/n") for name in reward.metrics) == 64


def drop(policy="drop_group"):
    return Reward(None, {}, {}, policy, "x")


def test_a_group_below_its_quorum_loses_every_value():
    rewards = [Reward(1.0, {}), drop(), drop()]
    settled = settle_groups(rewards, ["g", "g", "g"], 0.5)
    assert [reward.value for reward in settled] == [None, None, None]
    assert {reward.policy for reward in settled} == {"drop_group"}


def test_a_group_at_its_quorum_keeps_its_values_and_the_failure_is_neutral():
    settled = settle_groups([Reward(1.0, {}), drop()], ["g", "g"], 0.5)
    assert [reward.value for reward in settled] == [1.0, None]
    assert settled[1].policy == "neutral"


def test_other_groups_are_left_alone():
    rewards = [Reward(1.0, {}), drop(), Reward(2.0, {}), drop("neutral")]
    settled = settle_groups(rewards, ["a", "a", "b", "b"], 1.0)
    assert settled[2:] == rewards[2:]
    assert settled[0].value is None


@pytest.mark.parametrize("factors", [(1e308, 1e308), (1e308, -1e308), (1e39, 0.0), (-1e31, 1.0)])
@pytest.mark.parametrize("policy", ["neutral", "mask", Value(0.0)])
def test_a_sum_that_no_trainer_can_hold_is_an_abstention(factors, policy):
    """One row of 1e39 is an error in a tensor of 32 bits, and took its whole batch along."""
    terms = [
        Term(name, factor) for name, factor in zip(("answer", "quality"), factors, strict=True)
    ]
    outcomes = {"answer": Score(7.0), "quality": Score(7.0)}
    reward = combine(outcomes, terms, FailurePolicy(default=policy))
    assert reward.value is None
    assert reward.policy == ("neutral" if isinstance(policy, Value) else policy)
    assert reward.why.startswith("reward: out_of_range: the weighted sum is")
    with pytest.raises(JudgementError, match="weighted sum"):
        combine(outcomes, terms, FailurePolicy(default="raise"))


def test_a_number_that_stands_for_a_failure_is_no_reward_either_where_it_is_too_large():
    policy = FailurePolicy(kinds={FailureKind.TIMEOUT: Value(1e39)})
    reward = combine({"answer": Score(1.0), "quality": FAILED}, TERMS, policy)
    assert reward.value is None
    assert reward.policy == "neutral"


@given(st.floats(-1e30, 1e30))
def test_every_reward_fits_into_the_32_bits_of_a_trainer(value):
    reward = combine({"answer": Score(value)}, [Term("answer", 1.0)], FailurePolicy())
    assert reward.value == value
    assert math.isfinite(struct.unpack("f", struct.pack("f", reward.value))[0])


SHAPED = [
    Term("answer", 2.0),
    Term("quality", 0.5, (), "judge"),
    Term("shadow", 0.0, (), "judge"),
    Term("length", 1.0, (), "shape"),
]
LENGTH = Score(-0.25, "", {"penalty": 0.25, "response_length": 120, "median_length": 100.0})


def test_a_shaped_reward_logs_what_it_is_made_of():
    outcomes = {"answer": Score(1.0), "quality": Score(7.0), "shadow": FAILED, "length": LENGTH}
    reward = combine(outcomes, SHAPED, FailurePolicy())
    parts = {
        name: reward.metrics[name]
        for name in ("original_score", "quality_reward", "length_penalty")
    }
    assert parts == {"original_score": 2.0, "quality_reward": 3.5, "length_penalty": 0.25}
    assert (reward.metrics["response_length"], reward.metrics["median_length"]) == (120, 100)
    assert reward.value == 2.0 + 3.5 - 0.25


def test_a_part_that_abstained_is_not_measured_and_one_that_was_skipped_is_nought():
    outcomes = {"answer": FAILED, "quality": Skipped("x"), "shadow": FAILED, "length": FAILED}
    metrics = combine(outcomes, SHAPED, FailurePolicy()).metrics
    assert metrics["original_score"] is None
    assert metrics["quality_reward"] == 0
    assert metrics["length_penalty"] is None
    assert metrics["median_length"] is None


def test_a_reward_without_shapes_has_no_such_metrics():
    outcomes = {"answer": Score(1.0), "quality": Score(1.0)}
    assert "original_score" not in combine(outcomes, TERMS, FailurePolicy()).metrics
