"""A verdict that is introduced, or qualified, as something else than the judge's own is none.

Each list is a kind: what a judge says before (or behind) a number that it does not give. Beside them
stand the ordinary sentences that must go on being read.
"""
# ruff: noqa: RUF001 - judges write in Chinese, and with typographic marks

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.config.schema import VerdictRule
from zerowait.judge import parse
from zerowait.types import Score

ONE_TO_TEN = VerdictRule(integer=(1, 10))
YES_NO = VerdictRule(choice=["yes", "no"])
verdicts = st.integers(1, 10)
few = settings(deadline=None, max_examples=15)

SENTENCES = {
    "an example": ["For example,", "for example,", "For instance,", "E.g.,", "Good (e.g.", "To take an example,", "As a hypothetical,"],
    "a condition": ["If it had cited sources,", "Had it cited sources,", "Unless it is corrected,", "Without the error,", "Otherwise,", "In that case,", "Assuming the code runs,", "Provided that the tests pass,", "When sources are missing,", "Suppose it ran,", "Were it shorter,", "Perhaps,", "At best,", "It might be better,"],
    "another's": ["Last time,", "For the other response,", "Compared with the earlier answer (", "Criterion 1 (", "For response B,", "A perfect answer,", "As at first,", "Previously,", "Most judges agree,"],
    "the instructions": ["I was asked to reply with one line,", "I have to end with this,"],
}  # fmt: skip
LINES = {
    "an example": ["Example:", "Here is an example:", "For example:", "## Example", "**Sample output**", "An example of the expected output:", "Here is an example of the form."],
    "a condition": ["If the answer is right:", "If it had cited sources it would get", "With sources it would have been", "With sources:", "Otherwise:", "Without the error:", "Imagine", "Maybe", "It could be", "It might deserve", "At best, my score is:", "With sources I would give it"],
    "another's": ["Previous response:", "The other response deserves", "Response A:", "Answer 2:", "My verdict on the previous answer:", "A response without sources gets", "Perfect answer:", "It doesn't merit a", "I won't give", "Clarity:", "Response:", "Its own rating:", "The model's verdict:", "Below is what the other one got, on the same scale."],
    "the instructions": ["The required format is:", "The expected format would be", "I was asked to reply with", "Output format:", "The format of the verdict is:", "I have to end with the", "The scoring instructions:", "Expected output:"],
    "the scale": ["The scale:", "Scale:", "Rubric:", "**Rubric**", "Scoring rubric:", "Rating scale:", "Legend"],
    "a quotation": ["The response ends:", "At its end:", "In the last paragraph:", "The text:"],
}  # fmt: skip
REMARKS = {
    "a condition": [", if it had cited sources", " (if sources were cited)", " - if sources are added", ", had it cited sources", ", assuming the code runs", " (unless it is wrong)", ", only if it runs", ", otherwise 2", "; otherwise, 2", " (depending on style)", ", pending verification", ", provided the tests pass", ", at best.", " (at most)", " (hypothetically)", ", in theory", ", in the best case", " (?)", ", right?"],
    "an example": [", for example.", ", e.g.", " (for example)", " (as an example)", ", say.", ". That is only an example."],
    "another's": ["; for the other response", " (previous response)", ", for a perfect response", " (last time)", ", previously", " (initially)", " (tentative)", ", according to the response", ", as the response claims", " (its own rating)", ", says the author", ". That would be for a perfect answer.", ". This is reserved for flawless answers.", "\nThis would be the score with sources."],
    "the scale": [" (max)", " (maximum)", ", which means perfect", " (from the rubric)", ", reserved for perfect answers", ", or lower", " (or so)"],
}  # fmt: skip
CLAIMS = ["Score: {}", "**Score: {}**", "score: {}/10"]
READ_LINES = [
    *("Final verdict:", "**Evaluation:**", "## Verdict", "Here is my score:", "Overall:", "Grade:"),
    *(
        "- clear\n- no example given",
        "- It could be shorter\n- It may be wrong",
        "综合评价：",
        "结论：",
    ),
    *("I would rate it:", "My rating is as follows:", "So my final score is:", "Thus:", "Fazit:"),
    *("Based on these criteria, I give the following score:", "On second thought:", "Correction:"),
    *("The response would help the user", "It is a perfect example", "There is no other response"),
    *("Step 3 would be wrong if x were negative", "Format: correct", "It matches the reference"),
    *("It would be better with sources.", "For example, it cites nothing.", "Here it is:"),
]
READ_SENTENCES = [
    *("Overall,", "Given all of this,", "Considering all the above,", "In summary,", "After all,"),
    *("It would be better with sources.", "For example, it cites nothing.", "It could be shorter."),
    *(
        "Based on the rubric,",
        "On balance,",
        "For these reasons,",
        "As a result,",
        "All steps hold,",
    ),
    *("Since step 2 fails,", "Although it is short,", "On a scale of 1 to 10,", "Is it clear?"),
    *("综上所述，", "Good but incomplete (", "It is good;"),
]
READ_REMARKS = [
    *(", because it cites sources", " (good)", " - good reasons", ". It could cite sources."),
    *(". If it had sources it would be better.", "\nFor example, step 2 is missing.", " (perfect)"),
    *(". For example, it cites nothing.", ", since step 2 of 3 fails", ", as it lacks sources"),
    *("\nThis would help the user.", ". It would be clearer with an example.", " (maximum 10)"),
    *(", as the response says nothing of it", ", for the steps are right", ". Ideally it cites."),
]


def each(kinds):
    return [
        pytest.param(said, id=f"{kind}: {said}") for kind, them in kinds.items() for said in them
    ]


def is_verdict(text, rule=ONE_TO_TEN):
    return isinstance(parse(text, rule), Score)


@pytest.mark.parametrize("said", each(SENTENCES))
@given(v=verdicts, claim=st.sampled_from(CLAIMS))
@few
def test_a_sentence_that_supposes_recalls_or_recites_gives_no_verdict(said, v, claim):
    closed = ")" if said.endswith(("(", "(e.g.")) else ""
    assert not is_verdict(f"{said} {claim.format(v)}{closed}")
    assert not is_verdict(f"Step 2 fails. {said} {claim.format(v)}{closed}")
    assert not is_verdict(f"{said} the verdict is yes.", YES_NO)
    assert parse(f"{said} {claim.format(v)}{closed}\nScore: 2", ONE_TO_TEN).value == 2.0


@pytest.mark.parametrize("said", each(LINES))
@given(v=verdicts, claim=st.sampled_from([*CLAIMS, '{{"score": {}}}', "```\nScore: {}\n```"]))
@few
def test_a_line_that_goes_on_with_a_quoted_verdict_gives_none(said, v, claim):
    for gap in ("\n", "\n\n"):
        assert not is_verdict(f"{said}{gap}{claim.format(v)}"), said
        assert not is_verdict(f"It is clear.\n{said}{gap}{claim.format(v)}"), said
    own = f"{said}\n{claim.format(v)}\nIt is not more.\nScore: 2"
    assert parse(own, ONE_TO_TEN).value == 2.0


@pytest.mark.parametrize("said", each(REMARKS))
@given(v=verdicts, claim=st.sampled_from(CLAIMS))
@few
def test_a_remark_that_makes_the_verdict_conditional_or_quoted_leaves_none(said, v, claim):
    assert not is_verdict(f"{claim.format(v)}{said}")
    assert not is_verdict(f"Step 2 fails.\n{claim.format(v)}{said}")
    assert not is_verdict(f"Verdict: yes{said}", YES_NO)


@pytest.mark.parametrize("said", READ_LINES)
def test_an_ordinary_line_above_the_verdict_leaves_it(said):
    for gap in ("\n", "\n\n"):
        assert parse(f"{said}{gap}Score: 7", ONE_TO_TEN).value == 7.0
    assert parse(f'{said}\n{{"score": 7}}', ONE_TO_TEN).value == 7.0


@pytest.mark.parametrize("said", READ_SENTENCES)
def test_an_ordinary_sentence_before_the_verdict_leaves_it(said):
    closed = ")" if said.endswith("(") else ""
    assert parse(f"{said} the score is 7{closed}.", ONE_TO_TEN).value == 7.0
    assert parse(f"{said} score: 7{closed}", ONE_TO_TEN).value == 7.0


@pytest.mark.parametrize("said", READ_REMARKS)
def test_an_ordinary_remark_behind_the_verdict_leaves_it(said):
    assert parse(f"Score: 7{said}", ONE_TO_TEN).value == 7.0


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["with ", "would ", "if, ", "for example, score: 7, ", "with would\nscore: 7\n", "here is ", "example ", "as the response says "])  # fmt: skip
def test_no_introduction_repeated_many_times_makes_the_reader_slow(piece):
    parse(f"{piece * 20_000}\nScore: 7", ONE_TO_TEN)
    parse(f"Score: 7, {piece * 20_000}", ONE_TO_TEN)
