"""What a monitor sees, and what it takes for the truth."""

import pytest

from zerowait.config import Monitor, Rebalance
from zerowait.judge import monitored, reasoning, seen_by, truth_of
from zerowait.types import Abstain, FailureKind, Sample, Score, Skipped

BEFORE = Monitor(before="<answer>")


@pytest.mark.parametrize(
    ("response", "seen"),
    [
        ("<think>a</think> b", "a"),
        ("<think>\na\n</think>\n\nb", "a"),
        ("<THINK>a</Think> b", "a"),
        ("<think>a</think> b <think>c</think> d", "a\n\nc"),
        ("a</think> b", "a"),  # the chat template opened it
        ("a</think> b <think>c</think> d", "a\n\nc"),
        ("b <think>a", "a"),  # the response was cut
        ("<think>a <think>b</think> c", "a\n\nb"),
        ("<think></think> b", ""),
        ("b", ""),
        ("", ""),
        ("<thinking>a</thinking> b", ""),
    ],
)
def test_the_reasoning_is_what_stands_within_the_tags(response, seen):
    assert reasoning(response, Monitor()) == seen


def test_the_tags_may_have_another_name():
    assert reasoning("<plan>a</plan> b", Monitor(within="plan")) == "a"


@pytest.mark.parametrize(
    ("response", "seen"),
    [
        ("a <answer>b</answer>", "a"),
        ("a <answer>b</answer> c <answer>d</answer>", "a <answer>b</answer> c"),
        ("a", "a"),
        ("<answer>b</answer>", ""),
    ],
)
def test_the_reasoning_is_what_stands_before_the_last_answer(response, seen):
    assert reasoning(response, BEFORE) == seen


def test_nothing_but_the_reasoning_is_passed_on():
    sample = Sample("p", "<think>a</think> b", ground_truth="g", extra={"is_correct": True})
    assert seen_by(sample, Monitor()) == Sample("", "a")


class Scalar:
    """What numpy's and torch's scalars have in common."""

    def tolist(self):
        return True


@pytest.mark.parametrize(
    ("value", "truth"),
    [
        *[(value, True) for value in (True, 1, 1.0, "true", " Yes", "1", Scalar())],
        *[(value, False) for value in (False, 0, 0.0, "False", "no", "0")],
    ],
)
def test_a_truth_is_read_from_what_data_sets_hold(value, truth):
    assert truth_of(Sample("p", "r", extra={"is_correct": value}), Monitor()) is truth


@pytest.mark.parametrize("value", [None, 0.5, 2, "perhaps", "", [True], float("nan")])
def test_what_is_neither_true_nor_false_is_bad_input(value):
    outcome = truth_of(Sample("p", "r", extra={"level": value}), Monitor(truth="level"))
    assert isinstance(outcome, Abstain)
    assert outcome.kind is FailureKind.BAD_INPUT
    assert "extra.level" in outcome.detail


@pytest.mark.parametrize("outcome", [Abstain("timeout", "x"), Skipped("x")])
def test_what_was_not_predicted_is_worth_nothing(outcome):
    assert monitored(outcome, Monitor(), truth=True) is outcome


@pytest.mark.parametrize(
    ("yes", "truth", "value"),
    [(1, True, -1 / 0.8), (0, True, 1 / 0.8), (1, False, 1 / 0.2), (0, False, -1 / 0.2)],
)
def test_a_reward_is_divided_by_the_share_of_its_own_truth(yes, truth, value):
    monitor = Monitor(rebalance=Rebalance(true=0.8))
    outcome = monitored(Score(float(yes), detail={"verdict": "w"}), monitor, truth=truth)
    assert outcome.value == pytest.approx(value)
    assert outcome.detail == {
        "verdict": "w",
        "truth": truth,
        "right": bool(yes) is truth,
        "measured": {"predicted": yes, "right": float(bool(yes) is truth)},
    }
