"""contains, format, regex, toolcall."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.scorers.contains import contains
from zerowait.scorers.format import format_fault, tag_format
from zerowait.scorers.regex import regex
from zerowait.scorers.toolcall import toolcall
from zerowait.types import Abstain, FailureKind, Sample


@pytest.mark.parametrize(
    ("response", "gold", "value"),
    [
        ("The capital is Paris.", "paris", 1.0),
        ("The capital is PARIS", ["Rome", "Paris"], 1.0),
        ("New\n  York it is", "new york", 1.0),
        ("a party", "art", 0.0),
        ("arts and art", "art", 1.0),
        ("it is 12", "2", 0.0),
        ("it is 1.2", "1.2", 1.0),
        ("it is 1.2", "1", 0.0),
        ("it is 1.2", "2", 0.0),
        ("it is 1,200", "200", 0.0),
        ("it is 2, 1.", "1", 1.0),
        ("서울은 수도", "서울", 1.0),
        ("C++ it is", "c++", 1.0),
        ("die Straße", "STRASSE", 1.0),
        ("答案是北京。", "北京", 1.0),
        ("", "Paris", 0.0),
    ],
)
def test_containment_of_whole_words(response, gold, value):
    assert contains(Sample("", response, gold)).value == value


def test_the_prompt_contains_nothing_for_the_response():
    assert contains(Sample("Is it Paris?", "no idea", "Paris")).value == 0


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("<think>a</think><answer>b</answer>", ""),
        ("x <think>a</think> y <think>b</think> <answer>c</answer> z", ""),
        ("<answer>b</answer>", "<think> is missing"),
        ("<think>a</think>", "<answer> is missing"),
        ("", "<think> is missing"),
        ("<answer>b</answer><think>a</think>", "<think> stands after <answer>"),
        ("<think>a<answer>b</answer></think>", "<answer> stands inside <think>"),
        ("<think>a<think>b</think><answer>c</answer>", "<think> stands inside <think>"),
        ("<think>a</think></think><answer>c</answer>", "</think> closes nothing"),
        ("<think>a</answer>", "</answer> closes nothing"),
        ("<think>a</think><answer>b", "<answer> is not closed"),
        ("a</think><answer>b</answer>", "</think> closes nothing"),
        ("<THINK>a</THINK><answer>b</answer>", "<think> is missing"),
    ],
)
def test_the_fault_of_a_format_is_named(text, fault):
    assert format_fault(text) == fault
    assert tag_format(Sample("", text)).value == float(not fault)


def test_a_strict_format_wants_each_tag_once_and_nothing_outside():
    twice = "<think>a</think><answer>b</answer><answer>c</answer>"
    outside = "so: <think>a</think><answer>b</answer>"
    assert tag_format(Sample("", twice)).value == tag_format(Sample("", outside)).value == 1
    assert tag_format(Sample("", twice), once=True).why == "<answer> stands there 2 times"
    assert tag_format(Sample("", outside), whole=True).why == "there is text outside of the tags"
    fine = "<think>a</think>\n<answer>b</answer>\n"
    assert tag_format(Sample("", fine), once=True, whole=True).value == 1


def test_what_the_prompt_opened_counts_as_the_response_s_own():
    response = "a</think><answer>b</answer>"
    assert tag_format(Sample("", response)).value == 0
    assert tag_format(Sample("", response), prefix="<think>", score=0.5).value == 0.5


def test_a_pattern_is_found_or_not():
    assert regex(Sample("", "abc"), pattern="b").value == 1
    assert regex(Sample("", "abc"), pattern="B").value == 0
    assert regex(Sample("", "abc"), pattern="B", ignore_case=True).value == 1


def test_a_pattern_s_last_match_is_compared_with_the_gold():
    def value(response, gold, **options):
        sample = Sample("", response, gold)
        return regex(sample, pattern=r"x=(\w+)", equals_gold=True, **options).value

    assert value("x=1 x=2", ["2"]) == 1
    assert value("x=2 x=1", ["2"], format_score=0.1) == 0.1
    assert value("none", ["2"], format_score=0.1) == 0
    assert value("x=Yes", ["yes"]) == 0
    assert value("x=Yes", ["yes"], ignore_case=True) == 1
    assert isinstance(regex(Sample("", "x=1"), pattern="x", equals_gold=True), Abstain)


def call(body):
    return f"<tool_call>{body}</tool_call>"


F = '{"name": "f", "arguments": {"x": 1, "y": [true, null]}}'
G = '{"name": "g", "arguments": {}}'


@pytest.mark.parametrize(
    ("response", "value"),
    [
        (call(F) + call(G), 1.0),
        (call(G) + "then" + call(F), 1.0),
        (call(f"[{F}, {G}]"), 1.0),
        (call(F.replace("1", "1.0")) + call(G), 1.0),
        (call('{"arguments": {"y": [true, null], "x": 1}, "name": "f"}') + call(G), 1.0),
        (call(r'{"name": "g", "arguments": "{}"}') + call(F), 1.0),
        (call(F), 0.1),
        (call(F) + call(F) + call(G), 0.1),
        (call(F.replace("true", "1")) + call(G), 0.1),
        (call(F.replace("1", '"1"')) + call(G), 0.1),
        ("no call at all", 0.0),
        (call("oops"), 0.0),
        (call("5"), 0.0),
        (call('"text"'), 0.0),
        (call('{"name": "f"}'), 0.0),
        (call('{"name": ["f"], "arguments": {}}'), 0.0),
        (call('{"name": "f", "arguments": "oops"}'), 0.0),
        (call("[" * 100_000), 0.0),
        (call("9" * 10_000), 0.0),
        (call(F) + "<tool_call>" + G, 0.0),
        (call(F) + "</tool_call>", 0.0),
        ("<think>hm</think>" + call(F) + "<think>and</think>" + call(G), 1.0),
        (f"<think>{call(F)}{call(G)}</think>", 0.0),
        (f"<think>{call(F)}</think>{call(F)}{call(G)}", 1.0),
        (f"{call(F)}{call(G)}</think>", 0.0),
        (f"{call(F)}</think>{call(G)}", 0.1),
        (f"{call(F)}<think>{call(G)}", 0.1),
        (f"<think>a<think>b</think>{call(F)}</think>{call(G)}", 0.1),
        ("<think><tool_call></think>" + call(F) + call(G), 1.0),
        (call(F.replace('"x": 1', '"x": 2, "x": 1')) + call(G), 0.0),
        (call(F[:-1] + ', "name": "f"}') + call(G), 0.0),
        (call(F.replace("1", "NaN")) + call(G), 0.0),
        (call(F.replace("1", "1e400")) + call(G), 0.0),
        (call(F.replace("1", "1e0")) + call(G), 1.0),
        (call(F.replace("[true, null]", "[null, true]")) + call(G), 0.1),
    ],
)
def test_tool_calls_have_these_values(response, value):
    assert toolcall(Sample("", response, f"[{F}, {G}]"), format_score=0.1).value == value


ARGUMENTS = st.dictionaries(
    st.text(max_size=3), st.none() | st.booleans() | st.integers() | st.text(max_size=3), max_size=3
)
CALLS = st.lists(st.tuples(st.sampled_from(["f", "g"]), ARGUMENTS), max_size=3)


def written(calls, turned):
    """The calls as a response makes them; turned around, with their members, if wanted."""
    order = reversed if turned else iter
    return "then".join(
        call(json.dumps(dict(order([("name", name), ("arguments", dict(order(items.items())))]))))
        for name, items in order(calls)
    )


@given(CALLS, CALLS, st.booleans())
def test_calls_are_right_whatever_their_order_and_only_as_often_as_wanted(said, wanted, turned):
    gold = [{"name": name, "arguments": items} for name, items in wanted]
    response = f"<think>{written(wanted, turned)}</think>{written(said, turned)}"
    same = sorted(map(repr, said)) == sorted(map(repr, wanted))
    if same:
        assert toolcall(Sample("", response, gold)).value == 1
    elif len(said) != len(wanted):
        assert toolcall(Sample("", response, gold)).value == 0
    assert toolcall(Sample("", written(wanted, turned), gold)).value == 1


def test_no_call_is_right_where_none_is_wanted():
    assert toolcall(Sample("", "no call", [])).value == 1
    assert toolcall(Sample("", call(G), "[]")).value == 0


@pytest.mark.parametrize("gold", [None, "oops", "5", [{"name": "f"}], [1], {"name": 1}])
def test_gold_calls_that_cannot_be_read_are_an_abstention(gold):
    assert toolcall(Sample("", call(G), gold)).kind is FailureKind.BAD_INPUT
