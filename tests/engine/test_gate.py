import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.engine.gate import Gate, evaluation_order
from zerowait.types import Abstain, FailureKind, Score, Skipped


@pytest.mark.parametrize(
    ("text", "answer", "is_open"),
    [
        ("answer > 0", 1.0, True),
        ("answer > 0", 0.0, False),
        ("answer >= 0", 0.0, True),
        ("0 < answer <= 1", 1.0, True),
        ("not answer > 0", 0.0, True),
        ("answer == -1 or answer == 1", -1.0, True),
        ("answer > 0 and (answer < 0.5 or answer > 0.9)", 0.7, False),
    ],
)
def test_a_gate_is_a_condition_over_scores(text, answer, is_open):
    assert Gate(text).is_open({"answer": Score(answer)}) is is_open


def test_a_skipped_component_counts_as_nought():
    assert Gate("answer > 0").is_open({"answer": Skipped("closed")}) is False


def test_an_abstaining_component_makes_the_gate_abstain():
    outcome = Gate("answer > 0").is_open({"answer": Abstain("timeout", "no answer")})
    assert isinstance(outcome, Abstain)
    assert outcome.kind is FailureKind.TIMEOUT


@pytest.mark.parametrize(
    "text", ["", "answer", "answer >", "1 > 0", "__import__('os') > 0", "answer.x > 0", "a > 'b'", "a > True", "a in b", "x := 1", "f(a) > 0"]
)  # fmt: skip
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match=r"condition|neither|names no component"):
        Gate(text)


def test_a_gate_that_is_nested_beyond_reason_is_refused():
    """Each level is a call when the gate is tested, for every sample."""
    with pytest.raises(ValueError, match="nested too deeply"):
        Gate("not " * 150 + "a > 0")


@given(st.text(max_size=40))
def test_no_text_makes_a_gate_do_anything_but_parse_or_refuse(text):
    try:
        gate = Gate(text)
    except ValueError:
        return
    assert gate.names


def test_components_come_after_what_their_gates_need():
    gates = {"c": Gate("b > 0"), "b": Gate("a > 0 and d > 0"), "a": None, "d": None}
    ordered = evaluation_order(gates)
    assert ordered.index("a") < ordered.index("b") < ordered.index("c")
    assert ordered.index("d") < ordered.index("b")


def test_a_cycle_of_gates_is_named():
    with pytest.raises(ValueError, match="a -> b -> a"):
        evaluation_order({"a": Gate("b > 0"), "b": Gate("a > 0")})
