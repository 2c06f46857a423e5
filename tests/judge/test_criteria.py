"""Several criteria in one reply: every one is named with one verdict, or there is none."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.config import Endpoint, Judge, VerdictRule
from zerowait.errors import ConfigError
from zerowait.judge import Rubric, procedure_for
from zerowait.judge.parsing.criteria import CriteriaForm
from zerowait.judge.parsing.row_criteria import RowCriteria, StructuredRowCriteria
from zerowait.judge.rubric import Criterion, read_rubric
from zerowait.types import Score

CRITERIA = (Criterion("logic", 3.0), Criterion("tool_use", 1.0))
FORM = CriteriaForm(VerdictRule(integer=(1, 10)), CRITERIA)
WORDS = CriteriaForm(VerdictRule(choice=["good", "fair", "bad"]), CRITERIA)


def said(text, form=FORM):
    outcome = form.read(text)
    return outcome.detail["criteria"] if isinstance(outcome, Score) else outcome.kind.value


@pytest.mark.parametrize(
    "reply",
    [
        "logic: 7\ntool_use: 4",
        "It is fine.\n\nlogic: 7\ntool_use: 4\n",
        "tool_use: 4\nlogic: 7",
        "**Logic:** 7/10\n**Tool use:** 4/10",
        "- Logic: 7\n- tool-use: 4",
        "1. logic = 7\n2. tool_use = 4",
        "| criterion | N |\n|---|---|\n| logic | 7 |\n| tool_use | 4 |",
        "logic: 7, for step 2 is missing.\ntool_use: 4, for the call is needless.",
        "<think>logic: 1\ntool_use: 1</think>\nlogic: 7\ntool_use: 4",
        "logic\uff1a\uff17\ntool_use\uff1a\uff14",
        '{"reason": "2 of 3", "logic": 7, "tool_use": 4}',
        '```json\n{"logic": "7", "tool_use": 4,} // done\n```',
        "First I thought:\nlogic: 3\ntool_use: 3\n\nBut no.\n\nlogic: 7\ntool_use: 4",
        "```\nlogic: 7\ntool_use: 4\n```",
        "logic: 7\n\ntool_use: 4",
        '{"logic": {"reason": "2 of 3", "score": 7}, "tool_use": {"reason": "", "score": 4}}',
        '{"scores": {"logic": 7, "tool_use": 4}, "overall": 9}',
    ],
)
def test_what_judges_write_is_read(reply):
    assert said(reply) == {"logic": 7, "tool_use": 4}


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("", "unparseable"),
        ("7", "unparseable"),
        ("logic: 7", "unparseable"),
        ("logic: 7\n4", "unparseable"),
        ("logic: 7\ntool_use: many", "unparseable"),
        ("logic: 7\ntool_use: 4 or 5", "unparseable"),
        ("logic: 6-7\ntool_use: 4", "unparseable"),
        ("logic: 7\nlogic: 8\ntool_use: 4", "unparseable"),
        ("logic: 3\ntool_use: 3\nlogic: 7\ntool_use: 4", "unparseable"),
        ("The logic is worth 7 and tool_use 4.", "unparseable"),
        ("Score: 7\nVerdict: 4", "unparseable"),
        ("<think>logic: 7\ntool_use: 4", "unparseable"),
        ("logic: 7\ntool_use_2: 4", "unparseable"),
        ('{"logic": 7, "logic": 8, "tool_use": 4}', "unparseable"),
        ('{"logic": {"score": 7, "max": 20}, "tool_use": 4}', "unparseable"),
        ('{"logic": {"score": 7, "rating": 8}, "tool_use": 4}', "unparseable"),
        ('{"logic": 7, "tool_use": 4}\n{"logic": 8, "tool_use": 4}', "unparseable"),
        ("logic: 7.5\ntool_use: 4", "unparseable"),
        ("logic: 7\ntool_use: 0", "out_of_range"),
        ("logic: 11\ntool_use: 4", "out_of_range"),
    ],
)
def test_what_names_no_verdict_for_a_criterion_is_none(reply, kind):
    assert said(reply) == kind


def test_words_are_criteria_too_and_are_worth_what_the_choice_says():
    outcome = WORDS.read("Short.\nlogic: good\ntool_use: Fair")
    assert outcome.detail["criteria"] == {"logic": "good", "tool_use": "fair"}
    assert outcome.value == 0.875
    assert outcome.why == "Short."


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("Step 2 is missing.\nlogic: 7\ntool_use: 4", "Step 2 is missing."),
        ("logic: 7\ntool_use: 4\nStep 2 is missing.", "Step 2 is missing."),
        ('{"logic": 7, "tool_use": 4, "reason": "Step 2 is missing."}', "Step 2 is missing."),
        ("logic: 7\ntool_use: 4", ""),
    ],
)
def test_the_reasons_are_kept_wherever_they_stand(reply, why):
    assert FORM.read(reply).why == why


@given(st.integers(1, 10), st.integers(1, 10), st.text(max_size=60))
def test_the_form_that_is_asked_for_is_read_after_any_reasons(logic, tool_use, reasons):
    lines = re.findall(r"^\w+: N$", FORM.asked(reason_first=True), re.MULTILINE)
    reply = "\n".join(lines).replace("N", str(logic), 1).replace("N", str(tool_use), 1)
    if "<" not in reasons and "{" not in reasons:
        # the last words may quote: these do not
        said_so = f"{reasons}\nSo much for the reasons.\n\n{reply}"
        assert said(said_so) == {"logic": logic, "tool_use": tool_use}


PIECES = [
    "logic",
    "tool_use",
    ": ",
    "7",
    "4",
    "11",
    "\n",
    " ",
    "{",
    "}",
    '"',
    ",",
    "**",
    "or",
    "<think>",
]


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join)))
def test_any_text_is_read_without_an_error_and_no_criterion_is_invented(text):
    outcome = FORM.read(text)
    if isinstance(outcome, Score):
        assert 1 <= outcome.value <= 10
        folded = text.casefold()
        assert "logic" in folded
        assert re.search("tool[ _-]?use", folded)


FILE = """---
version: 2
criteria:
  logic: {weight: 3, ask: "Does each step follow?"}
  style: 1
---
## System
Judge.

## User
{{response}}

{{criteria}}

{{reply_format}}
"""


def rubric(text=FILE):
    return read_rubric(text, name="f", where="f.md")


def test_criteria_are_read_from_the_settings():
    assert rubric().criteria == (
        Criterion("logic", 3.0, "Does each step follow?"),
        Criterion("style", 1.0),
    )
    assert rubric().version.startswith("2+")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("style: 1", "style: none"), "f.md:5: the weight of 'style' must be a number greater than 0, not 'none'"),
        (("style: 1", "style: 0"), "f.md:5: the weight of 'style' must be a number greater than 0"),
        (("style: 1", "style: .inf"), "f.md:5: the weight of 'style' must be a number"),
        (("weight: 3,", "wieght: 3,"), "f.md:4: the criterion 'logic' has no key 'wieght'; did you mean 'weight'?"),
        (("weight: 3, ", ""), "f.md:4: the criterion 'logic' needs a weight"),
        (("  style: 1\n", ""), "f.md:3: criteria needs at least two"),
        (("style: 1", "style: [1]"), "f.md:5: style is a weight, or {weight: 0.3"),
        (("style: 1", "2nd: 1"), "f.md:5: '2nd' is no name for a criterion"),
        (("style: 1", "spread: 1"), "f.md:5: a criterion cannot be called 'spread'"),
        (("style: 1", "LOGIC: 1"), "f.md:5: the criteria 'logic' and 'LOGIC' cannot be told apart"),
        (("style: 1", "logic: 1"), "f.md:5: logic is given twice"),
        (("step follow", "{{step}} follow"), "f.md:4: the criterion 'logic' asks with placeholders"),
        (('"Does', "Does"), "f.md:4: is not YAML"),
        (("{{criteria}}", ""), "f.md: {{criteria}} is missing"),
        (("version: 2", "version: [2]"), "f.md:2: version is one word"),
        (("criteria:\n", "criterai:\n"), "f.md:3: a rubric has no setting 'criterai'; did you mean 'criteria'?"),
    ],
)  # fmt: skip
def test_wrong_criteria_are_an_error_that_names_file_and_line(change, error):
    text = FILE.replace(*change)
    assert text != FILE
    with pytest.raises(ConfigError, match=re.escape(error)):
        rubric(text)


def test_a_placeholder_for_criteria_needs_criteria():
    with pytest.raises(ConfigError, match=r"there is {{criteria}} and no 'criteria'"):
        Rubric("mine", "1", "Judge.", "{{response}} {{criteria}} {{reply_format}}")


@pytest.mark.parametrize("ask", ["{{criteria}}\n\n{{response}}", "{{response}}\n\n{{criteria}}"])
def test_criteria_are_asked_apart_only_behind_the_sample(ask):
    text = FILE.replace("{{response}}\n\n{{criteria}}", ask)
    endpoint = Endpoint(base_url="http://127.0.0.1:1/v1", model="m")
    judge = Judge(endpoints=[endpoint], verdict=VerdictRule(integer=(1, 10)), ask="apart")
    if ask.startswith("{{criteria}}"):
        with pytest.raises(ConfigError, match=r"ask: apart needs {{criteria}} in the user section"):
            procedure_for(judge, rubric(text), base=None)
    else:
        assert procedure_for(judge, rubric(text), base=None).calls == 2


@pytest.mark.parametrize("form", [RowCriteria(2), StructuredRowCriteria(RowCriteria(2), True)])
@pytest.mark.parametrize(
    "reply",
    [
        "C1: yes\nC2: no",
        "C1: true\nC2: false",
        "**C1:** met, since it says so\n**C2:** not met",
        "- C1: \u2705\n- C2: \u274c",
        '{"C1": true, "C2": false}',
        '{"C1": 1, "C2": 0}',
        'Here it is:\n{"C1": {"reason": "it says so", "met": true}, "C2": {"met": "no"}}',
    ],
)
def test_a_rows_criteria_are_read_in_either_form_whichever_was_asked_for(form, reply):
    assert form.read(reply).detail["met"] == {"C1": True, "C2": False}


@pytest.mark.parametrize("form", [RowCriteria(2), StructuredRowCriteria(RowCriteria(2), True)])
@pytest.mark.parametrize(
    "reply",
    [
        "C1: true\nC2: partly",
        "C1: true or false\nC2: no",
        '{"C1": 1, "C2": 2}',
        '{"C1": true, "C2": false} Wait, C2 is met.',
        '{"C1": true, "C2": false}\n{"C1": true, "C2": true}',
    ],
)
def test_a_rows_criterion_that_is_left_open_is_no_verdict(form, reply):
    assert not isinstance(form.read(reply), Score)
