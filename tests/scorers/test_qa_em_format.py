"""Golden vectors for `qa_em_format`: Search-R1's shares for the answer and for the order of tags."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.scorers.qa_em_format import qa_em_format, sequence_fault
from zerowait.types import Abstain, Sample

THINK, ANSWER, WRONG = "<think>hm</think>", "<answer>Paris</answer>", "<answer>Rome</answer>"
SEARCH = "<search>capital</search>\n\n<information>Doc 1 Paris</information>\n\n"
NOTHING = "<search>capital</search><information>Doc 1 Lyon</information>"

VALUES = [
    # response, value, value with a share for what was found
    (THINK + ANSWER, 1.0, 1.0),
    (THINK + SEARCH + THINK + ANSWER, 1.0, 1.0),
    (THINK + SEARCH + THINK + SEARCH + THINK + ANSWER, 1.0, 1.0),
    (ANSWER, 0.8, 0.8),
    (THINK + SEARCH + ANSWER, 0.8, 0.8),
    ("so: " + THINK + ANSWER, 0.8, 0.8),
    (THINK + ANSWER + " done", 0.8, 0.8),
    (THINK + WRONG, 0.2, 0.2),
    (THINK + SEARCH + THINK + WRONG, 0.2, 0.3),
    (THINK + NOTHING + THINK + WRONG, 0.2, 0.2),
    (WRONG, 0.1, 0.1),
    (THINK + SEARCH + WRONG, 0.1, 0.1),
    (THINK, 0.0, 0.0),
    (THINK + SEARCH + THINK, 0.0, 0.0),
    ("", 0.0, 0.0),
]


@pytest.mark.parametrize(("response", "value", "found"), VALUES)
def test_answer_and_order_have_these_values(response, value, found):
    sample = Sample("", response, {"target": ["Paris"]})
    assert qa_em_format(sample).value == pytest.approx(value)
    assert qa_em_format(sample, retrieval_score=0.1).value == pytest.approx(found)


def test_a_gold_that_cannot_be_read_abstains():
    assert isinstance(qa_em_format(Sample("", THINK + ANSWER, None)), Abstain)


TAGS = ["<think>", "</think>", "<search>", "</search>", "<answer>", "</answer>", "x", " "]


@given(st.lists(st.sampled_from(TAGS), max_size=10).map("".join))
def test_a_right_order_has_every_tag_closed_and_one_answer_at_the_end(text):
    if not sequence_fault(text):
        assert text.rstrip().endswith("</answer>")
        assert text.count("<answer>") == 1
        for name in ("think", "search", "answer"):
            assert text.count(f"<{name}>") == text.count(f"</{name}>")
