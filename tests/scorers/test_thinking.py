"""An answer that was only thought of is none, by any rule and in any model's tags."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.scorers import SCORERS
from zerowait.scorers.thinking import spoken, without_thinking
from zerowait.types import Sample

CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
# the rule: an answer that is worth 1, its gold, options
ANSWERS = {
    "by_data_source": ("#### 72", "72", {}),
    "constraints": (
        "It is Paris.",
        {"instruction_id_list": ["keywords:existence"], "kwargs": [{"keywords": ["Paris"]}]},
        {},
    ),
    "contains": ("It is Paris.", "Paris", {}),
    "gsm8k": ("#### 72", "72", {}),
    "gsm8k, flexible": ("It is 72.", "72", {"method": "flexible"}),
    "json_schema": ('{"a": 1}', None, {"schema": {"required": ["a"]}}),
    "json_schema, whole": ('{"a": 1}', None, {"schema": {"required": ["a"]}, "place": "whole"}),
    "math": ("The answer is 72.", "72", {}),
    "math, boxed": (r"\boxed{72}", "72", {"extraction": "boxed"}),
    "math, tags": ("<answer>72</answer>", "72", {}),
    "math, any": (r"so $72$", "72", {"extraction": "any"}),
    "multiple_choice": ("The answer is (B).", "B", {}),
    "qa_em": ("<answer>Paris</answer>", "Paris", {}),
    "qa_em_format": ("<answer>Paris</answer>", "Paris", {"structure_score": 0, "final_score": 0}),
    "qa_f1": ("<answer>Paris</answer>", "Paris", {}),
    "qa_subem": ("<answer>Paris</answer>", "Paris", {}),
    "regex": ("Answer: B", "B", {"pattern": r"Answer: (\w)"}),
    "regex, gold": ("Answer: B", "B", {"pattern": r"Answer: (\w)", "equals_gold": True}),
    "toolcall": (CALL, [{"name": "f", "arguments": {}}], {}),
}
# `format` is about the tags themselves, `column` reads no response, and `code` runs in a sandbox.
READ_NO_ANSWER = {"code", "column", "format"}

TAGS = [
    ("<think>", "</think>"),
    ("<think>\n", "\n</think>\n\n"),
    ("<THINK>", "</Think>"),
    ('<think budget="512">', "</think >"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<thoughts>", "</thoughts>"),
    ("<reasoning>", "</reasoning>"),
    ("<reason>", "</reason>"),
    ("<analysis>", "</analysis>"),
    ("<reflection>", "</reflection>"),
    ("<scratchpad>", "</scratchpad>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought\n", "<channel|>"),
    ("<unused94>thought\n", "<unused95>"),
]
# What opens and closes the thinking of gpt-oss, with its control tokens and without.
CHANNELS = [
    (
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
    ),
    ("<|start|>assistant<|channel|>analysis<|message|>", "<|end|><|channel|>final <|message|>"),
    ("analysisWe need this. ", "assistantfinal"),
]


def value(name, response, prompt=""):
    _, gold, options = ANSWERS[name]
    sample = Sample(prompt, response, gold, data_source="openai/gsm8k")
    return SCORERS[name.partition(",")[0]](sample, **options).value


def test_every_rule_that_reads_answers_is_tested_here():
    assert {name.partition(",")[0] for name in ANSWERS} == set(SCORERS) - READ_NO_ANSWER


def otherwise(name, expected):
    """The responses (and prompts) of `expected` that are not worth what it says."""
    return [said for said, worth in expected if value(name, *said) != worth]


@pytest.mark.parametrize("name", ANSWERS)
def test_only_what_comes_after_the_thinking_counts(name):
    answer, other = ANSWERS[name][0], "hm, 5, A, {}, Rome"
    expected = []
    for opens, closes in TAGS + CHANNELS:
        expected += [
            ((f"{opens}{other}{closes}{answer}",), 1),
            ((f"{opens}{answer}{closes}",), 0),
            ((f"{opens}{answer}{closes}I do not know.",), 0),
            ((f"{opens}{answer}",), 0),
        ]
        if not opens.startswith("analysis"):
            expected.append(((f"Hm. {opens}{answer}",), 0))
    assert otherwise(name, expected) == []


@pytest.mark.parametrize("name", ANSWERS)
def test_thinking_may_have_begun_in_the_prompt(name):
    answer = ANSWERS[name][0]
    expected = []
    for opens, closes in TAGS:
        expected += [((f"{answer}{closes}",), 0), ((f"hm{closes}{answer}",), 1)]
        prefill = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": opens}]
        for prompt in (f"2+2?<|Assistant|>{opens}", f"2+2?\n{opens}\n", prefill):
            expected += [((answer, prompt), 0), ((f"hm{closes}{answer}", prompt), 1)]
    assert otherwise(name, expected) == []


@pytest.mark.parametrize(
    "prompt",
    [
        "Think in <think> tags.",
        "Write your thoughts inside of <think>",
        [{"role": "user", "content": "Write thoughts, then the answer:\n<think>"}],
        [],
        "",
    ],
)
def test_a_prompt_that_only_speaks_of_tags_opens_no_thinking(prompt):
    assert spoken(Sample(prompt, "It is 72.")) == "It is 72."


@pytest.mark.parametrize(
    ("response", "rest"),
    [
        ("<think>a<think>b</think>c</think>d", "d"),
        ("<thinking>a<reflection>b</reflection>c", ""),
        ("<think>a</thinking>b", ""),
        ("a</think>b</think>c", "c"),
        ("a<think>b</think>c<think>d", "ac"),
        ("the analysis: 5 < 6 > 4, I think [THINKING]", None),
        ("analysis of the data says 5", None),
        ("x <thinker> y <|end|> z <|im_end|>", None),
        ("<|channel|>final<|message|>5<|return|>", "5"),
        ("<|channel|>commentary<|message|>hm<|end|><|channel|>final<|message|>5", "5"),
        ("<|channel|>final<|message|>5<|end|><|channel|>analysis<|message|>6", "5"),
        ("", ""),
    ],
)
def test_what_is_said_is_told_from_what_is_thought(response, rest):
    assert without_thinking(response) == (response if rest is None else rest)


@given(st.lists(st.tuples(st.sampled_from(TAGS), st.text("ab<>/ ", max_size=6), st.integers(0, 9))))
def test_whatever_is_thought_between_what_is_said_is_left_out(rounds):
    text = "".join(f"{opens}{thought}{closes}{said}" for (opens, closes), thought, said in rounds)
    assert "".join(without_thinking(text).split()) == "".join(str(said) for *_, said in rounds)


@pytest.mark.parametrize("pattern", [r"<think>.+</think>\s*5", r"</?think>", r"\[THINK\]|hm"])
def test_a_pattern_about_thinking_is_searched_in_all_of_the_response(pattern):
    assert SCORERS["regex"](Sample("", "<think>hm</think> 5"), pattern=pattern).value == 1
    assert SCORERS["regex"](Sample("", "<think>hm</think> 5"), pattern="hm").value == 0


def test_a_hundred_thousand_marks_are_read_in_one_pass():
    for text in ("<think>" * 20_000, "</think>" * 20_000, "< " * 40_000, "<think " * 20_000):
        assert len(without_thinking(text)) <= len(text)
