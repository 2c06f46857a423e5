"""What the body of a judge's HTTP reply means."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.config.schema import VerdictRule
from zerowait.judge import (
    Usage,
    read_reply,
    reply_origin,
    reply_usage,
    wants_more_tokens,
    well_formed,
)
from zerowait.types import Abstain, FailureKind, Score

RULE = VerdictRule(integer=(1, 10))
MESSAGES = [
    json.loads(line)
    for line in Path(__file__).with_name("messages.jsonl").read_text("utf-8").splitlines()
]


def reply(content="Score: 7", *, finish="stop", **message):
    choice = {"index": 0, "message": {"content": content, **message}, "finish_reason": finish}
    return json.dumps({"id": "1", "object": "chat.completion", "choices": [choice]}).encode()


def told(body):
    outcome = read_reply(body, RULE)
    return outcome.value if isinstance(outcome, Score) else outcome.kind.value


@pytest.mark.parametrize("shape", MESSAGES, ids=lambda shape: repr(shape["message"])[:60])
def test_each_known_shape_of_a_message_means_what_the_corpus_says(shape):
    """Content parts, tool calls, reasoning fields, refusals and cut answers, whole."""
    choice = {"index": 0, "message": shape["message"], "finish_reason": shape["finish"]}
    assert told(json.dumps({"choices": [choice]}).encode()) == shape["expect"]


@pytest.mark.parametrize(
    "body",
    [
        reply(),
        reply([{"type": "text", "text": "Score: 7"}]),
        reply([{"type": "text", "text": "Good.\nSco"}, {"type": "output_text", "text": "re: 7"}]),
        reply(["Score: 7"]),
        reply([{"type": "thinking", "text": "Score: 3"}, {"type": "text", "text": "Score: 7"}]),
        reply(reasoning_content="Score: 3"),
        reply(reasoning="Score: 3", refusal=None, tool_calls=None),
        reply(refusal=""),
        reply(finish=None),
        reply(finish=5),
        reply(None, tool_calls=[{"function": {"name": "rate", "arguments": '{"score": 7}'}}]),
        reply("", tool_calls=[{"function": {"name": "rate", "arguments": {"score": 7}}}]),
        reply(None, function_call={"name": "rate", "arguments": '{"score": 7}'}),
        reply("I'm sorry to say that step 2 is wrong.\nScore: 7"),
        reply("Score: 7\nThe reasons are", finish="length"),
    ],
)
def test_every_shape_of_reply_with_a_verdict_is_a_score(body):
    assert told(body) == 7.0


@pytest.mark.parametrize("finish", ["length", "max_tokens", "MAX_TOKENS"])
@pytest.mark.parametrize(
    "content", ["", None, "The first step", "<think>\nScore: 7\nbut", "Score: 1", "Good.\n7", "7"]
)
def test_a_reply_cut_before_its_verdict_was_complete_is_truncated(content, finish):
    """Thinking eats max_tokens (issue 46), and half of "Score: 10" is no verdict."""
    outcome = read_reply(reply(content, finish=finish, reasoning_content="hm"), RULE)
    assert outcome.kind.value == "truncated"
    assert wants_more_tokens(outcome)


def test_only_truncation_asks_for_more_tokens():
    for body in (reply(), reply(""), reply("Score: 15"), reply(refusal="no"), b""):
        assert not wants_more_tokens(read_reply(body, RULE))


@pytest.mark.parametrize(
    "body",
    [
        reply(finish="content_filter"),
        reply(None, finish="content_filter"),
        reply(finish="SAFETY"),
        reply(None, refusal="I can't help with that."),
        reply("Score: 7", refusal="I can't help with that."),
        reply("I'm sorry, but I can't assist with that."),
        reply("I\u2019m really sorry, I can\u2019t rate this."),
        reply("Sorry, no."),
        reply("I cannot evaluate this response."),
        reply("Unfortunately, I am unable to judge it."),
        reply("I'm not able to judge it."),
        reply("As an AI, I do not judge."),
        reply("抱歉\uff0c我无法评价。"),
        reply("我不能评价。"),
    ],
)
def test_a_refusal_is_refused_and_not_a_low_score(body):
    assert told(body) == "refused"


@pytest.mark.parametrize(
    "body",
    [
        reply(""),
        reply(None),
        reply(7),
        reply({"score": 7}),
        reply([]),
        reply([7]),
        reply([{"type": "image_url", "image_url": {}}]),
        reply([{"type": ["text"], "text": "Score: 7"}]),
        reply([{"type": "text", "text": 7}]),
        reply("", reasoning_content="Score: 7"),
        reply("It is a good response."),
        reply(None, tool_calls=[]),
        reply(None, tool_calls="x"),
        reply(None, tool_calls=[1]),
        reply(None, tool_calls=[{"function": {"arguments": None}}]),
        reply(
            None,
            tool_calls=[
                {"function": {"arguments": '{"score": 7}'}},
                {"function": {"arguments": '{"score": 8}'}},
            ],
        ),
    ],
)
def test_a_reply_without_a_verdict_is_unparseable_however_it_looks(body):
    assert well_formed(body)
    assert told(body) == "unparseable"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"Score: 7",
        b"7",
        b"null",
        b"[]",
        b"{}",
        b"<html>502</html>",
        b'{"error": {"message": "overloaded"}}',
        b'{"choices": []}',
        b'{"choices": null}',
        b'{"choices": {}}',
        b'{"choices": [{}]}',
        b'{"choices": [{"message": "Score: 7"}]}',
        b'{"choices": [{"message": {"content": "Score: 7"}}]',
        b'{"choices": [{"message": {"content": "\xff"}}]}',
        b'{"choices": [{"message": {"content": ' + b"[" * 100_000,
        reply()[:-10],
        b'{"score": 7}',
    ],
)
def test_a_body_that_is_no_chat_completion_is_never_a_score(body):
    assert not well_formed(body)
    assert told(body) == "unparseable"
    assert reply_usage(body) == Usage()
    assert reply_origin(body) == ("", "")


def test_a_verdict_outside_the_range_is_out_of_range():
    assert told(reply("Score: 15")) == "out_of_range"
    assert told(reply("Score: 15\nbecause", finish="length")) == "out_of_range"


@given(st.binary())
@settings(deadline=None)
def test_no_bytes_raise(body):
    assert isinstance(read_reply(body, RULE), Abstain)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(content=_json, finish=_json, usage=_json, calls=_json, refusal=_json)
@settings(deadline=None)
def test_no_field_of_any_type_raises(content, finish, usage, calls, refusal):
    message = {"content": content, "tool_calls": calls, "refusal": refusal, "function_call": calls}
    choices = [{"message": message, "finish_reason": finish}]
    body = json.dumps(
        {"choices": choices, "usage": usage, "model": finish, "system_fingerprint": calls}
    ).encode("utf-8", "replace")
    assert isinstance(read_reply(body, RULE), (Score, Abstain))
    assert reply_usage(body).prompt_tokens >= 0
    reply_origin(body)


def test_tokens_and_origin_are_what_the_reply_says():
    body = json.dumps(
        {
            "choices": [{"message": {}}],
            "model": "deepseek-v3-0324",
            "system_fingerprint": "fp_1",
            "usage": {"prompt_tokens": 812, "completion_tokens": 64, "prompt_cache_hit": 1},
        }
    ).encode()
    assert reply_usage(body) == Usage(prompt_tokens=812, completion_tokens=64)
    assert reply_origin(body) == ("deepseek-v3-0324", "fp_1")


@pytest.mark.parametrize(
    "usage", [None, [], "x", {}, {"prompt_tokens": "9"}, {"prompt_tokens": -1}]
)
def test_usage_that_is_not_usage_costs_nothing(usage):
    body = json.dumps({"choices": [{"message": {}}], "usage": usage}).encode()
    assert reply_usage(body) == Usage()


@pytest.mark.parametrize("finish", ["length", "abort", "error", "insufficient_system_resource"])
def test_half_a_number_is_never_a_verdict_whatever_the_end_is_called(finish):
    choice = {"message": {"content": "Score: 1"}, "finish_reason": finish}
    outcome = read_reply(json.dumps({"choices": [choice]}).encode(), VerdictRule(integer=(1, 10)))
    assert outcome.kind is FailureKind.TRUNCATED
