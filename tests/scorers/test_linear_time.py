"""No text of a policy, and none of a judge, takes a scanner more time than its length is worth."""

import time
from functools import partial

import pytest

from zerowait.config import VerdictRule
from zerowait.judge import parse
from zerowait.judge.parsing.answer import split_thinking
from zerowait.judge.parsing.loose_json import json_object
from zerowait.scorers import resolve
from zerowait.scorers.answers import last_answer
from zerowait.scorers.boxed import last_boxed, last_boxes
from zerowait.scorers.json_text import json_in
from zerowait.scorers.qa_em_format import sequence_fault
from zerowait.scorers.thinking import without_thinking
from zerowait.types import Sample

SHORT, LONG = 4_000, 48_000
TWELVEFOLD = 28  # with a margin for a busy machine; what grows with the square is 144-fold


def rule(name, gold, **options):
    return lambda text: resolve(name)(Sample("", text, gold), **options)


SCANNERS = {
    "json_in": json_in,
    "json_in whole": partial(json_in, place="whole"),
    "json_schema": rule("json_schema", None, schema={"type": "object"}),
    "thinking": without_thinking,
    "boxed": last_boxed,
    "boxes": last_boxes,
    "answer": last_answer,
    "tags in order": sequence_fault,
    "format": rule("format", None),
    "toolcall": rule("toolcall", [{"name": "f", "arguments": {}}]),
    "gsm8k": rule("gsm8k", "4"),
    "gsm8k flexible": rule("gsm8k", "4", method="flexible"),
    "multiple_choice": rule("multiple_choice", "B"),
    "multiple_choice of several": rule("multiple_choice", "AC"),
    "qa_subem": rule("qa_subem", "A"),
    "qa_f1": rule("qa_f1", "Paris"),
    "contains": rule("contains", "Paris"),
    "verdict, a number": partial(parse, rule=VerdictRule(integer=(1, 10))),
    "verdict, a word": partial(parse, rule=VerdictRule(choice=["yes", "no"])),
    "a judge's JSON": json_object,
    "a judge's thinking": split_thinking,
}
FILLINGS = [
    *("{", "[", "}", '{"a":', '{"a":[', '{"a" ', "[1,", "[1 ", '[{"', '{"score": ', "{'a': ", "{'"),
    *('"', '\\"', '["[",1,', '["', "{/", "{#", "{//\n", "/*", "```json\n", "```\n", "tru", "[tru"),
    *("<think>", "</think>", "<", "<|channel|>", "<|channel|>final<|message|>", "<answer>"),
    *("</answer>", "<tool_call>", "<tool_call>{", "<search>", "[THINK]", "analysis"),
    *("\\boxed{", "\\boxed", "\\fbox{ ", "\\", "\n", " ", "#### ", "1,", "-", "*", "Score: "),
    *("score: 7\n", "7 out of ", "i rate ", "on a scale from 1 to ", "wait, ", "the answer is "),
    *("A ", "A and ", "B) ", "not ", "> ", "| ", "\uff03", "hence, ", "answer: ", "i'd say "),
]


def seconds(scan, filling, length, times):
    """The CPU time of one scan, the best of several."""
    text = (filling * (length // len(filling) + 1))[:length]
    took = []
    for _ in range(times):
        began = time.process_time()
        scan(text)
        took.append(time.process_time() - began)
    return min(took)


def growth(scan, filling):
    """How many times as long the long text takes; 0 where the short one takes next to nothing."""
    short = seconds(scan, filling, SHORT, times=3)
    return seconds(scan, filling, LONG, times=1) / short if short > 0.0001 else 0.0


@pytest.mark.parametrize("name", SCANNERS)
def test_twelve_times_the_text_takes_no_more_than_about_twelve_times_as_long(name):
    """300 kB of "{" took json_schema 16.7 s."""
    slow = []
    for filling in FILLINGS:
        found = growth(SCANNERS[name], filling)
        if found > TWELVEFOLD:  # the machine may have been busy just then: look again
            found = min(growth(SCANNERS[name], filling) for _ in range(5))
        if found > TWELVEFOLD:
            slow.append((filling, round(found, 1)))
    assert not slow


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"{x} \frac{1}{2} [1) {a: {b: " * 3000 + '{"a": 1}', {"a": 1}),
        ('{"' * 20_000 + ' {"a": 1}', {"a": 1}),
        ('so {"a": "' + "x" * 5000 + '"} ok', {"a": "x" * 5000}),
        ('so {"a": [' + "1, " * 3000 + "2]} ok", {"a": [1] * 3000 + [2]}),
        ('so {"a": ' + " " * 5000 + "true} ok", {"a": True}),
        ('{"a": "' + "\\u00e9" * 2000 + '"} [', {"a": "\u00e9" * 2000}),
        ("x" * 1015 + '{"a": 12345678}', {"a": 12345678}),
    ],
)
def test_json_is_found_however_long_it_is_and_whatever_stands_before_it(text, value):
    assert json_in(text) == (value,)
