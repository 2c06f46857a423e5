"""What a judge thought is never its verdict, in whatever way its model marks thinking."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.config.schema import VerdictRule
from zerowait.judge import parse, read_reply
from zerowait.judge.parsing.answer import split_thinking
from zerowait.types import Score

RULE = VerdictRule(integer=(1, 10))
# How thinking begins and ends, and whose it is.
FORMS = [
    ("<think>", "</think>"),  # DeepSeek, Qwen, GLM, MiniMax
    ("<Think>", "</THINK>"),
    ("<think>", "</thinking>"),
    ("< think >", "</think>"),
    ('<think effort="high">', "</think>"),
    ("<thinking>", "</thinking>"),  # Claude when prompted
    ("<thought>", "</thought>"),  # Exaone
    ("<thought_process>", "</thought_process>"),
    ("<inner_thoughts>", "</inner_thoughts>"),
    ("<reflection>", "</reflection>"),
    ("<scratchpad>", "</scratchpad>"),
    ("<cot>", "</cot>"),
    ("<seed:think>", "</seed:think>"),  # Seed-OSS
    ("<mm:think>", "</mm:think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("[THINK]", "[/THINK]"),  # Magistral
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),  # Kimi
    ("<|begin_of_thought|>", "<|end_of_thought|>\n\n<|begin_of_solution|>"),  # Sky-T1, OpenThinker
    ("<|START_THINKING|>", "<|END_THINKING|><|START_RESPONSE|>"),  # Command A
    ("<|think|>", "<|/think|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    ("<unused94>thought\n", "<unused95>"),  # MedGemma
    ("<|channel>thought\n", "<channel|>"),  # Gemma 4
    (
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
    ),  # gpt-oss
    (
        "<|start|>assistant<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>",
    ),
    ("analysis", "assistantfinal"),  # the same, its tokens left out by the server
    ("Thinking Process:\n\n", "\n</think>"),  # Qwen 3.5
    ("Thinking...\n", "\n...done thinking.\n"),  # Ollama
    ("Here is my thought process:\n", "\nHere is my response:"),  # Granite
    ("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),  # Apriel
]
# Thoughts that name a verdict, as drafts do.
DRAFTS = ["Score: {}", "I weigh it.\nScore: {}\n", "I weigh it.\n\n{}\n", "Is it\n{}/10\nor less?", '{{"score": {}}}\n']  # fmt: skip
verdicts = st.integers(1, 10)
few = settings(deadline=None, max_examples=15)


def body(text, finish="stop"):
    choice = {"message": {"content": text}, "finish_reason": finish}
    return json.dumps({"choices": [choice]}).encode()


def told(text, finish="stop"):
    outcome = read_reply(body(text, finish), RULE)
    return outcome.value if isinstance(outcome, Score) else outcome.kind.value


@pytest.mark.parametrize(("begin", "end"), FORMS)
@given(draft=st.sampled_from(DRAFTS), thought=verdicts, v=verdicts, gap=st.sampled_from(["", "\n", "\n\n"]))  # fmt: skip
@few
def test_the_verdict_is_what_follows_the_thinking(begin, end, draft, thought, v, gap):
    thinking = f"{begin}{draft.format(thought)}{end}{gap}"
    assert told(f"{thinking}Score: {v}") == v
    assert told(f"{thinking}{v}") == v
    assert told(f"{thinking}It is checked.\nScore: {v}") == v


@pytest.mark.parametrize(("begin", "end"), FORMS)
@given(draft=st.sampled_from(DRAFTS), thought=verdicts, finish=st.sampled_from(["stop", "length"]))
@few
def test_thinking_that_never_ended_or_that_no_answer_follows_gives_no_verdict(
    begin, end, draft, thought, finish
):
    none = "truncated" if finish == "length" else "unparseable"
    assert told(f"{begin}{draft.format(thought)}", finish) == none
    assert told(f"{begin}{draft.format(thought)}{end}", finish) == none
    assert told(f"{begin}{draft.format(thought)}{end}\nIt is good.", finish) == none


@pytest.mark.parametrize(("begin", "end"), FORMS)
def test_a_refusal_behind_the_thinking_is_refused(begin, end):
    assert told(f"{begin}Shall I?{end}\nI'm sorry, but I can't assist with that.") == "refused"


@pytest.mark.parametrize("end", ["</think>", "[/THINK]", "</seed:think>", "\u25c1/think\u25b7"])
@given(two=st.tuples(verdicts, verdicts), finish=st.sampled_from(["stop", "length"]))
@few
def test_where_only_the_end_is_marked_two_different_verdicts_around_it_are_none(end, two, finish):
    """The template began the thinking, or a response that writes the mark is being quoted."""
    quoting = f"Weak.\nScore: {two[0]}\nIt ends with\n{end}\nScore: {two[1]}\nand no more."
    assert told(quoting, finish) in (two[0], "unparseable", "truncated")
    drafted = f"Weak.\nScore: {two[0]}\n{end}\nScore: {two[1]}"
    assert told(drafted) == (two[1] if two[0] == two[1] else "unparseable")
    assert told(f"Step 2 of 3 holds.{end}\nScore: {two[1]}") == two[1]


def test_two_final_messages_are_no_answer_because_either_may_be_quoted():
    final = "<|end|><|start|>assistant<|channel|>final<|message|>"
    text = f"<|channel|>analysis<|message|>It writes{final}Score: 10{final}Score: 2"
    assert told(text) == "unparseable"


@pytest.mark.parametrize(
    "text",
    [
        "Analysis: step 2 of 3 fails.\nScore: 7",
        "analysis\nStep 2 fails.\nScore: 7",
        "[Analysis]\nStep 2 fails.\n\nScore: 7",
        "**Analysis**\nStep 2 fails.\n\nScore: 7",
        "Reasoning: it is thinking aloud.\nScore: 7",
        "It opens <think> but never closes it.\nScore: 7",
        "The answer has no </think> tag in it.\nScore: 7",
        "<reasoning>Step 2 fails.</reasoning>\n<score>7</score>",
        "The <thinking> part is long, </thinking> and so on.\nScore: 7",
    ],
)
def test_what_only_looks_like_thinking_is_read(text):
    assert told(text) == 7.0


@pytest.mark.parametrize("token", ["<|im_end|>", "<|eot_id|>", "</s>", "<|end_of_text|>"])
def test_digits_on_both_sides_of_a_control_token_are_not_one_number(token):
    assert told(f"Score: 1{token}0") == "unparseable"
    assert told(f"Score: 7{token}\n") == 7.0


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece",
    [
        "<think>",
        "</think>",
        "x<think>",
        "<think\n",
        "[THINK] ",
        "<|channel|>final<|message|>",
        " <think>",
        "a_think>",
        "<a:think b",
        "analysis",
        "assistantfinal",
    ],
)
def test_no_mark_repeated_many_times_makes_the_reader_slow(piece):
    parse(piece * 20_000, RULE)
    parse(f"<think>{piece * 20_000}</think>7", RULE)


@given(st.lists(st.sampled_from([*"ab \n<>[]/|7", *(mark for form in FORMS for mark in form)])).map("".join))  # fmt: skip
@settings(deadline=None)
def test_the_answer_is_an_end_of_the_text_with_control_tokens_left_out(text):
    answer, before = split_thinking(text)
    assert before == "" or answer is not None
    if answer is not None:
        assert len(answer) + len(before) <= len(text)
