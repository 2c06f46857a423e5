"""Golden vectors for the published rules, beside the corrected ones.

Each row was seen by running the published code. Where verl is installed, its own functions are
asked again on random text.
"""

import contextlib
import importlib.util
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.scorers.gsm8k import gsm8k
from zerowait.scorers.qa_em import qa_em
from zerowait.scorers.qa_subem import qa_subem
from zerowait.scorers.toolcall import toolcall
from zerowait.types import Sample

SHOWN = "Answer inside <answer> and </answer>, for example <answer> Beijing </answer>. Who?"
EM = [
    # prompt, response, golds, corrected, verl, Search-R1
    ("", "<answer>Paris</answer>", ["Paris"], 1.0, 1.0, 0.0),
    ("", "<answer>Paris</answer><answer>Paris</answer>", ["Paris"], 1.0, 1.0, 1.0),
    (SHOWN, "<answer>Paris</answer>", ["Paris"], 1.0, 1.0, 1.0),
    (SHOWN, "I do not know", ["Beijing"], 0.0, 0.0, 1.0),
    (SHOWN, "I do not know", ["Paris"], 0.0, 0.0, 0.1),
    (SHOWN, "<answer>Rome</answer>", ["Paris"], 0.1, 0.1, 0.1),
    (SHOWN, "<answer>!!</answer>", ["The"], 0.1, 1.0, 1.0),
    ("", "<answer>a</answer>" * 10, ["x", "An a"], 0.1, 1.0, 1.0),
    ("", "<answer>Paris</answer>" * 10, ["Paris"], 1.0, 1.0, 1.0),
    ("", "<answer>Paris</answer>" * 11, ["Paris"], 1.0, 0.25, 1.0),
    ("", "<answer>Paris</answer>" + "</answer>" * 10, ["Paris"], 1.0, 0.25, 0.0),
    ("", "<answer>x <answer>Paris</answer>", ["Paris"], 1.0, 0.1, 0.0),
]


@pytest.mark.parametrize("row", EM)
def test_exact_match_reproduces_each_published_rule(row):
    prompt, response, golds, *expected = row
    sample = Sample(prompt, response, {"target": golds})
    modes = (None, "verl", "search_r1")
    values = [qa_em(sample, format_score=0.1, compat=mode).value for mode in modes]
    assert values == expected


def test_search_r1_reads_a_chat_prompt_too():
    chat = [{"role": "user", "content": SHOWN}]
    assert qa_em(Sample(chat, "no idea", ["Beijing"]), compat="search_r1").value == 1.0


@pytest.mark.parametrize(
    ("response", "golds", "ours", "verl"),
    [
        ("<answer>It is Paris</answer>", ["Paris"], 1.0, 1.0),
        ("<answer>Rome</answer>", ["The"], 0.0, 1.0),
        ("<answer>Rome</answer>" * 11, ["Rome"], 1.0, 1.0),
        ("<answer>a party</answer>", ["art"], 0.0, 1.0),
    ],
)
def test_containment_reproduces_the_published_rule(response, golds, ours, verl):
    sample = Sample("", response, golds)
    assert [qa_subem(sample, compat=mode).value for mode in (None, "verl")] == [ours, verl]


GSM8K = [
    # method, response, gold, corrected, verl, Search-R1
    ("strict", "#### 72", "72", 1.0, 1.0, 1.0),
    ("strict", "#### 1,080", "1080", 1.0, 1.0, 1.0),
    ("strict", "#### $5", "5", 1.0, 0.0, 0.0),
    ("strict", "#### 72.", "72", 1.0, 0.1, 0.1),
    ("strict", "#### 72.0", "72", 1.0, 0.1, 0.1),
    ("strict", "#### 72" + " " * 300, "72", 1.0, 0.0, 1.0),
    ("strict", "#### 1 #### 2", "2", 1.0, 1.0, 0.1),
    ("strict", "72", "72", 0.0, 0.0, 0.0),
    ("flexible", "It is 72", "72", 1.0, 1.0, 1.0),
    ("flexible", "It is 72.", "72", 1.0, 0.1, 0.1),
    ("flexible", "72 ...", "72", 1.0, 0.1, 0.1),
    ("flexible", "10-5", "5", 1.0, 0.1, 0.1),
    ("flexible", "72 .", "72", 1.0, 1.0, 1.0),
    ("flexible", "none", "72", 0.0, 0.0, 0.0),
    ("flexible", "none.", "72", 0.0, 0.1, 0.1),
]


@pytest.mark.parametrize("row", GSM8K)
def test_gsm8k_reproduces_each_published_rule(row):
    method, response, gold, *expected = row
    sample = Sample("", response, gold)
    modes = (None, "verl", "search_r1")
    values = [gsm8k(sample, method=method, format_score=0.1, compat=mode).value for mode in modes]
    assert values == expected


def test_search_r1_s_number_may_be_in_the_prompt():
    sample = Sample("Write #### 7 like this.", "#### 8", "7")
    assert gsm8k(sample, compat="search_r1").value == 1.0
    assert gsm8k(sample).value == 0.0


ONE = '{"name": "f", "arguments": {"x": 1}}'
TWO = '{"name": "g", "arguments": {"x": 1, "y": [2]}}'
TURNED = '{"arguments": {"y": [2], "x": 1}, "name": "g"}'
THOUGHT = "<think>a</think>"


@pytest.mark.parametrize(
    ("response", "gold", "ours", "tool_n1"),
    [
        (f"{THOUGHT}<tool_call>{ONE}</tool_call>", f"[{ONE}]", 1.0, 1.0),
        (f"<tool_call>{ONE}</tool_call>", f"[{ONE}]", 1.0, 0.0),
        (f"</think><think><tool_call>{ONE}</tool_call>", f"[{ONE}]", 0.0, 1.0),
        (f"<think><tool_call>{ONE}</tool_call></think>", f"[{ONE}]", 0.0, 1.0),
        (f"{THOUGHT}<tool_call>{json.dumps(ONE)}</tool_call>", f"[{ONE}]", 0.0, 0.0),
        (f"{THOUGHT}<tool_call>{ONE}</tool_call>" * 2, f"[{ONE}, {ONE}]", 1.0, 0.0),
        (f"{THOUGHT}<tool_call>{ONE}</tool_call>", f"[{ONE.replace('1', '1.0')}]", 1.0, 0.0),
        (THOUGHT, "[]", 1.0, 0.0),
        (f"{THOUGHT}<tool_call>[]</tool_call>", "[]", 1.0, 1.0),
        (f"{THOUGHT}<tool_call>5</tool_call>", f"[{ONE}]", 0.0, 0.0),
        (f"{THOUGHT}<tool_call>[{ONE}]</tool_call>", f"[{ONE}]", 1.0, 1.0),
        (f"{THOUGHT}<tool_call>[{TWO}, {ONE}]</tool_call>", f"[{ONE}, {TWO}]", 1.0, 1.0),
        (f"{THOUGHT}<tool_call>{TURNED}</tool_call>", f"[{TWO}]", 1.0, 1.0),
        (f'{THOUGHT}<tool_call>"x"</tool_call>', f"[{ONE}]", 0.0, 0.0),
        (f"{THOUGHT}<|im_start|>assistant<tool_call>{ONE}</tool_call>", f"[{ONE}]", 1.0, 0.0),
        (
            f"{THOUGHT}<tool_call>{ONE}</tool_call><tool_call>{TWO}</tool_call>",
            f"[{TWO}]",
            0.0,
            1.0,
        ),
    ],
)
def test_tool_calls_reproduce_tool_n1(response, gold, ours, tool_n1):
    sample = Sample("", response, gold)
    assert [toolcall(sample, compat=mode).value for mode in (None, "tool_n1")] == [ours, tool_n1]


def test_the_published_rules_read_a_long_text_in_one_pass_too():
    for opening in ("<tool_call>", "<answer>"):
        sample = Sample("", THOUGHT + opening * 100_000, f"[{ONE}]")
        assert toolcall(sample, compat="tool_n1").value == qa_em(sample, compat="verl").value == 0


def published(file: str):
    """A scoring file of the installed verl, loaded without verl itself."""
    found = importlib.util.find_spec("verl")
    if found is None or not found.submodule_search_locations:
        pytest.skip("verl is not installed")
    path = Path(found.submodule_search_locations[0]) / "utils" / "reward_score" / file
    spec = importlib.util.spec_from_file_location(f"published_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PIECES = ["<answer>", "</answer>", "Paris", "the", " ", "!!", "A", "\n", "<answer>Paris</answer>"]
NUMBERS = ["#### ", "72", "-", "$", "1,080", ".", ",", " ", "72.", "x" * 200, "\n"]


@given(st.lists(st.sampled_from(PIECES), max_size=25), st.sampled_from(["Paris", "The", "A x"]))
def test_exact_match_agrees_with_the_installed_verl(pieces, gold):
    response, truth = "".join(pieces), {"target": [gold]}
    with contextlib.redirect_stdout(io.StringIO()):
        theirs = published("search_r1_like_qa_em.py").compute_score(
            response, truth, format_score=0.1
        )
    ours = qa_em(Sample("", response, truth), compat="verl", format_score=0.1)
    assert ours.value == theirs


@given(
    st.lists(st.sampled_from(NUMBERS), max_size=12),
    st.sampled_from(["72", "1080", "-1080"]),
    st.sampled_from(["strict", "flexible"]),
)
def test_gsm8k_agrees_with_the_installed_verl(pieces, gold, method):
    response = "".join(pieces)
    theirs = published("gsm8k.py").compute_score(response, gold, method=method, format_score=0.1)
    ours = gsm8k(Sample("", response, gold), compat="verl", method=method, format_score=0.1)
    assert ours.value == theirs
