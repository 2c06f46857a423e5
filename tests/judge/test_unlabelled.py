"""Verdicts that honest judges give without a label, and what only looks like one."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.config.schema import VerdictRule
from zerowait.judge import parse
from zerowait.judge.parsing.loose_json import as_json
from zerowait.types import Score

ONE_TO_TEN = VerdictRule(integer=(1, 10))
YES_NO = VerdictRule(choice=["yes", "no"])
NAMES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
verdicts = st.integers(1, 10)
few = settings(deadline=None, max_examples=10)


def said(text, rule=ONE_TO_TEN):
    outcome = parse(text, rule)
    return outcome.detail["verdict"] if isinstance(outcome, Score) else outcome.kind.value


GIVEN = [
    *("I'd rate this an {v} out of 10.", "I would rate this response a {v}/10.", "I give it {v}/10."),
    *("I rate this response {v} out of 10.", "I'd give this an {v} out of 10.", "I'd rate it {v}/10"),
    *("I would give this response a score of {v}.", "I assign it a score of **{v}**."),
    *("So, I give it a rating of {v}.", "Overall, I would rate the answer {v}/10, for it is right."),
    *("The response deserves a score of {v}.", "This answer earns {v}/10.", "I award it {v} out of 10"),
]  # fmt: skip
NOT_GIVEN = [
    *("I gave the previous one {v}/10.", "I would give it {v}/10 for style.", "I give it {v} minutes."),
    *("If it had sources, I would give it a {v}/10.", "I would give it {v}/10 if it had sources."),
    *("I'd rate this an {v} out of 5.", "The other response deserves a score of {v}.", "I give {v}."),
    *("It says, I give it {v}/10.", "I would give it {v}/10, assuming it runs.", "I can give it {v}/10?"),
    *("I'd give it a score of {v} to 10.", "I would not give it {v}/10.", "They rate it {v}/10."),
]  # fmt: skip
OPENING = ["{v}/10 - clear", "{v}/10 \u2014 clear", "**{v}/10** - clear", "{v}/10. Clear.", "{v}/10 (clear)", "{v} out of 10. Clear.",
           "{v}/10 because it is clear", "{v}/10\n\nIt is clear.", "# {v}/10\nIt is clear.", "{v}/10, clear"]  # fmt: skip
NOT_OPENING = ["{v}/10 of the steps hold", "{v}/10 - clear\n5/10 - fair\n1/10 - poor", "{v}/5 - clear", "{v} - paper", "{v}. Clear", "{v}/10, if it runs",
               "{v}/10 - wait, no", "{v}/10: perfect", "{v}/10 to 9/10 - clear", "It got {v}/10 - clear"]  # fmt: skip


@pytest.mark.parametrize("form", GIVEN)
@given(v=verdicts)
@few
def test_a_sentence_in_which_the_judge_gives_a_number_is_its_verdict(form, v):
    assert said(form.format(v=v)) == v
    assert said(f"Step 2 of 3 fails. {form.format(v=v)}") == v
    assert said(f"Step 2 of 3 fails.\n\n{form.format(v=v)}\n") == v


@pytest.mark.parametrize("form", NOT_GIVEN)
@given(v=verdicts)
@few
def test_a_sentence_that_gives_a_number_to_something_else_is_no_verdict(form, v):
    assert said(form.format(v=v)) == "unparseable"
    assert said(f"{form.format(v=v)}\nScore: 2") == 2


@pytest.mark.parametrize("form", OPENING)
@given(v=verdicts)
@few
def test_a_number_with_its_scale_that_begins_a_reply_is_its_verdict(form, v):
    assert said(form.format(v=v)) == v
    assert said(f"{form.format(v=v)}\nScore: 2") == 2


@pytest.mark.parametrize("form", NOT_OPENING)
@given(v=verdicts)
@few
def test_a_number_that_only_begins_a_reply_is_no_verdict(form, v):
    assert said(form.format(v=v)) == "unparseable"


@pytest.mark.parametrize("because", [", because", " because", " - since", ", as", " due to", ". Because"])  # fmt: skip
@pytest.mark.parametrize("word", ["Yes", "No", "**Yes**", "no"])
def test_a_word_that_begins_a_reply_counts_with_its_reason_alone(word, because):
    expected = word.strip("*").lower() if not because.startswith(".") else "unparseable"
    assert said(f"{word}{because} step 2 of 3 holds.", YES_NO) == expected
    assert said(f"{word}, the reasoning is long.", YES_NO) == "unparseable"
    assert said(f"{word}{because} of it. No, wait: yes.", YES_NO) == "unparseable"


@pytest.mark.parametrize("mark", ["\u2705", "\u274c", "\U0001f44d", "\U0001f44e"])
def test_a_picture_is_no_word(mark):
    """No rule says what it means: beside a word it may confirm or deny."""
    for text in (mark, f"Verdict: {mark}", f"{mark} yes", f"Verdict: yes {mark}"):
        assert said(text, YES_NO) == "unparseable"


@given(v=verdicts)
@few
def test_a_number_may_be_spelled_out(v):
    for form in ("Rating: {}", "Score: {} out of ten", "**Score:** {}/10", '{{"score": "{}"}}'):
        assert said(form.format(NAMES[v - 1].title())) == v
    assert said(f"Score: {NAMES[v - 1]} of the best") == "unparseable"
    assert said(f"Score: {NAMES[v - 1]} out of five") in (v if v == 5 else "unparseable", "unparseable")  # fmt: skip
    assert said(f"Score: {NAMES[v - 1]} to ten") == "unparseable"
    assert said(f"Score: {NAMES[v - 1]}-point scale") == "unparseable"


@pytest.mark.parametrize("before", ["Feedback: clear.", "Feedback: step 2 of 3 fails.\n", "It is clear!"])  # fmt: skip
def test_the_end_of_prometheus_feedback_is_its_verdict(before):
    assert said(f"{before} [RESULT] 4") == 4
    assert said(f"{before} [RESULT] 4 of them are right") == "unparseable"
    assert said(f"{before} It ends with [RESULT] 10") == "unparseable"


PYTHON = [
    *("{{'score': {v}}}", "{{'reason': 'It is \"good\", it says', 'score': {v}}}", "{{'score': {v},}}"),
    *("{{'reason': 'It\\'s {{good}}', 'score': {v}, 'clear': True, 'notes': None}}",),
    *("It is clear.\n```python\n{{'why': \"It's good\", 'score': {v}}}\n```", "{{'score': '{v}/10'}}"),
    *('{{"score": {v}, "clear": True, "notes": None, "steps": [{{"ok": False}}]}}',),
]  # fmt: skip


@pytest.mark.parametrize("form", PYTHON)
@given(v=verdicts)
@few
def test_an_object_as_python_writes_it_is_read_as_json_is(form, v):
    assert said(form.format(v=v)) == v


@pytest.mark.parametrize("text", ["{'score': None}", "{'score': True}", "{'score': 7, 'score': 8}", "{'rubric': {'score': 7}, 'a': 1}", "{'score': [7]}", "It says {'score': 7}"])  # fmt: skip
def test_a_python_object_without_one_verdict_is_none(text):
    assert said(text) == "unparseable"


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=("C",))),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab '\"\\{}[],:", max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text("ab'\"", max_size=3), _values, max_size=3))
@settings(deadline=None)
def test_every_python_object_of_plain_values_comes_back(value):
    text = repr(value)
    found = as_json(f"x {text} y", 2)
    assert found is not None
    assert found[1] == 2 + len(text)
    assert json.loads(found[0]) == value


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["{'", "{'a\\'", "'", '{"\\"', "{'a': ", "i give it 7/10", "\ni give ", "[result] ", "7/10\n"])  # fmt: skip
def test_no_piece_repeated_many_times_makes_the_reader_slow(piece):
    parse(piece * 20_000, ONE_TO_TEN)
    parse("{'" + piece * 20_000, ONE_TO_TEN)
    parse(f"7/10\n{piece * 20_000}", ONE_TO_TEN)


@pytest.mark.parametrize("blank", ["\n", "\n*", "\n ", ". \n"])
def test_blank_lines_cost_no_more_than_their_number(blank):
    text = f"it is {blank * 60_000} 8/10."
    before = time.process_time()
    said(text)
    assert time.process_time() - before < 10  # 0.1 s; minutes, if it grew with the square


PROSE = ["The answer is right.", "Fine.", "It holds, and the last of 4 steps is short."]


@pytest.mark.parametrize("key", ["evaluation", "assessment", "overall_assessment", "verdict"])
@pytest.mark.parametrize("prose", PROSE)
def test_a_member_that_holds_prose_leaves_the_score_beside_it(key, prose):
    assert said(json.dumps({key: prose, "score": 6})) == 6
    for other in ("7/10", "N/A", "It deserves a score of 3.", "I cannot judge this."):
        assert said(json.dumps({key: other, "score": 6})) == "unparseable"
