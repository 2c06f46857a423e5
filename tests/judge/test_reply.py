"""What the body of a judge's HTTP reply means."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.attribution import ReplyEnding, ending_of
from zerowait.config.schema import VerdictRule
from zerowait.judge import (
    decode_reply,
    read_reply,
)
from zerowait.types import Abstain, FailureKind, Score

RULE = VerdictRule(integer=(1, 10))
MESSAGES = [
    json.loads(line)
    for line in Path(__file__).with_name("messages.jsonl").read_text("utf-8").splitlines()
]


def is_answer(body, endings=()):
    completion = decode_reply(body, endings)
    return completion is not None and completion.failure is None


def reply(content="Score: 7", *, finish="stop", **message):
    choice = {"index": 0, "message": {"content": content, **message}, "finish_reason": finish}
    return json.dumps({"id": "1", "object": "chat.completion", "choices": [choice]}).encode()


def told(body):
    outcome = read_reply(body, RULE)
    return outcome.value if isinstance(outcome, Score) else outcome.kind.value


def test_of_several_choices_the_first_by_its_index_counts():
    first, second = (json.loads(reply(text))["choices"][0] for text in ("Score: 7", "Score: 3"))
    second["index"] = 1
    assert told(json.dumps({"choices": [second, first]}).encode()) == 7
    assert told(json.dumps({"choices": [first, second]}).encode()) == 7


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
        reply("I'm sorry to say that step 2 is wrong.\nScore: 7"),
    ],
)
def test_every_shape_of_reply_with_a_verdict_is_a_score(body):
    assert told(body) == 7.0


@pytest.mark.parametrize(
    "finish",
    [
        *("length", "max_tokens", "MAX_TOKENS", "max_output_tokens", "model_length"),
        *("model_context_window_exceeded", "FinishReason.MAX_TOKENS", "incomplete"),
    ],
)
@pytest.mark.parametrize(
    "content",
    [
        *("", None, "The first step", "<think>\nScore: 7\nbut", "Score: 1", "Good.\n7", "7"),
        *("Score: 7\nThe reasons are", "Score: 15\nbecause", '{"score": 7}'),
    ],
)
def test_a_reply_that_was_cut_is_truncated_whatever_it_begins_with(content, finish):
    """Thinking eats max_tokens, and half of "Score: 10" is no verdict."""
    outcome = read_reply(reply(content, finish=finish, reasoning_content="hm"), RULE)
    assert outcome.kind.value == "truncated"


def test_a_reply_that_was_cut_in_blanks_says_so():
    """A server that enforces JSON may let a model write blanks for ever (vLLM 0.24.0)."""
    outcome = read_reply(reply("{" + 100 * " ", finish="length"), RULE)
    assert outcome.detail == "the answer reached max_tokens in a run of 100 blanks"
    outcome = read_reply(reply("Because\n", finish="length"), RULE)
    assert outcome.detail == "the answer reached max_tokens before its end"


def test_only_a_cut_reply_is_truncated():
    for body in (reply(), reply(""), reply("Score: 15"), reply(refusal="no"), b""):
        outcome = read_reply(body, RULE)
        assert isinstance(outcome, Score) or outcome.kind is not FailureKind.TRUNCATED


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
    assert is_answer(body)
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
    assert not is_answer(body)
    assert told(body) == "unparseable"
    assert decode_reply(body) is None


def test_a_verdict_outside_the_range_is_out_of_range():
    assert told(reply("Score: 15")) == "out_of_range"


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
    completion = decode_reply(body)
    assert completion is None or completion.prompt_tokens >= 0


def test_tokens_and_origin_are_what_the_reply_says():
    body = json.dumps(
        {
            "choices": [{"message": {}}],
            "model": "deepseek-v3-0324",
            "system_fingerprint": "fp_1",
            "usage": {"prompt_tokens": 812, "completion_tokens": 64, "prompt_cache_hit": 1},
        }
    ).encode()
    completion = decode_reply(body)
    assert (completion.prompt_tokens, completion.completion_tokens) == (812, 64)
    assert (completion.model, completion.fingerprint) == ("deepseek-v3-0324", "fp_1")


@pytest.mark.parametrize(
    "usage", [None, [], "x", {}, {"prompt_tokens": "9"}, {"prompt_tokens": -1}]
)
def test_usage_that_is_not_usage_costs_nothing(usage):
    body = json.dumps({"choices": [{"message": {}}], "usage": usage}).encode()
    completion = decode_reply(body)
    assert (completion.prompt_tokens, completion.completion_tokens) == (0, 0)


COMPLETE = (
    *("stop", "end_turn", "stop_sequence", "eos", "eos_token", "COMPLETED", "complete", "STOP"),
    *("tool_calls", "function_call", "tool_use", "finished", "FinishReason.STOP", "", "null", None),
)
FILTERED = (
    *("content_filter", "SAFETY", "RECITATION", "refusal", "sensitive", "PROHIBITED_CONTENT"),
    *(
        "BLOCKLIST",
        "SPII",
        "guardrail_intervened",
        "content_filter: RECITATION",
        "content_filtered",
    ),
    *("IMAGE_SAFETY", "ERROR_TOXIC", "FINISH_REASON_SAFETY"),
)
PROVIDERS = (
    *("abort", "error", "insufficient_system_resource", "load", "cancelled", "timeout", "unknown"),
    *(
        "FINISH_REASON_UNSPECIFIED",
        "OTHER",
        "MALFORMED_FUNCTION_CALL",
        "pause_turn",
        "network_error",
    ),
    *("not_finished", "USER_CANCEL", "ERROR", "server_error", "shutdown", 5, 2, True, {}, ["stop"]),
)


@pytest.mark.parametrize("finish", COMPLETE)
def test_each_known_word_for_a_whole_answer_lets_its_verdict_be_read(finish):
    assert is_answer(reply(finish=finish))
    assert told(reply(finish=finish)) == 7.0


@pytest.mark.parametrize("finish", FILTERED)
@pytest.mark.parametrize("content", ["Score: 7", None, ""])
def test_each_word_for_a_filter_is_refused_and_is_an_answer(finish, content):
    assert is_answer(reply(content, finish=finish))
    assert told(reply(content, finish=finish)) == "refused"


@pytest.mark.parametrize("finish", PROVIDERS, ids=repr)
@pytest.mark.parametrize(
    "content", ["Score: 8", "8", "Score: 1", "", None, '{"score": 8}', "Good.\nScore: 8\nEnd."]
)
def test_any_other_ending_is_the_providers_failure_whatever_was_written(finish, content):
    """A2: a judge that was restarted is no judge that finished, also with a verdict in the text."""
    body = reply(content, finish=finish)
    assert not is_answer(body)
    assert told(body) == "http_error"


@pytest.mark.parametrize("finish", [*PROVIDERS, "natural", "paused_by_admin"], ids=repr)
def test_only_an_unknown_word_may_be_one_for_a_whole_answer(finish):
    detail = read_reply(reply(finish=finish), RULE).detail
    known = ending_of(finish) is ReplyEnding.BROKEN
    assert ("endings: [" in detail) is not known
    assert ("broken off" in detail) is known


def test_an_ending_that_the_endpoint_names_is_a_whole_answer():
    body = reply(finish="natural_end")
    assert told(body) == "http_error"
    assert is_answer(body, ["Natural_End"])
    assert read_reply(body, RULE, endings=["natural_end"]).value == 7.0


def usage(body, **tokens):
    return json.dumps(json.loads(body) | {"usage": tokens}).encode()


@pytest.mark.parametrize("content", ["", None, " \n", []])
@pytest.mark.parametrize(
    "tokens",
    [
        {"completion_tokens": 0},
        {"prompt_tokens": 9, "completion_tokens": 0, "total_tokens": 9},
        {"prompt_tokens": 9, "total_tokens": 9},
    ],
)
def test_a_whole_reply_for_which_nothing_was_generated_is_the_providers_failure(content, tokens):
    body = usage(reply(content), **tokens)
    assert not is_answer(body)
    assert told(body) == "http_error"


@pytest.mark.parametrize(
    "body",
    [
        usage(reply(""), completion_tokens=1),  # the judge ended at once
        usage(reply("", reasoning_content="Score: 7"), completion_tokens=0),
        usage(reply(None, tool_calls=[{"function": {"arguments": "{}"}}]), completion_tokens=0),
        reply(""),
    ],
)
def test_an_empty_answer_that_the_judge_did_write_is_its_own(body):
    assert is_answer(body)
    assert told(body) == "unparseable"


@pytest.mark.parametrize("content", ["", None, []])
@pytest.mark.parametrize("finish", [None, "", "null"])
def test_without_an_answer_and_without_an_ending_a_reply_was_never_finished(content, finish):
    assert told(reply(content, finish=finish)) == "http_error"
    assert not is_answer(reply(content, finish=finish, reasoning_content="Score: 7"))


@pytest.mark.parametrize(
    "message",
    [
        {"tool_calls": [{"function": {"name": "rate", "arguments": '{"score": 7}'}}]},
        {"tool_calls": [{"function": {"name": "rate", "arguments": {"score": 7}}}]},
        {"function_call": {"name": "rate", "arguments": '{"score": 7}'}},
        {"reasoning_content": "Score: 7"},
        {"reasoning": "Score: 7"},
    ],
)
@pytest.mark.parametrize("finish", ["stop", "tool_calls"])
def test_no_verdict_is_read_from_a_tools_arguments_or_from_reasoning(message, finish):
    assert told(reply(None, finish=finish, **message)) == "unparseable"
    assert told(reply("", finish=finish, **message)) == "unparseable"


@pytest.mark.parametrize("error", [{"code": 502, "message": "upstream"}, "upstream gone"])
def test_a_reply_with_an_error_in_it_is_no_answer_also_with_a_verdict_in_it(error):
    whole = json.loads(reply())
    for broken in (
        whole | {"error": error},
        whole | {"choices": [whole["choices"][0] | {"error": error}]},
    ):
        body = json.dumps(broken).encode()
        assert not is_answer(body)
        assert told(body) == "http_error"
    for sound in (None, {}, "", {"code": 0, "message": "success"}, {"code": None}):
        assert told(json.dumps(whole | {"error": sound}).encode()) == 7.0


@pytest.mark.parametrize(
    "place",
    [
        {"choice": {"finishReason": "MAX_TOKENS"}},
        {"choice": {"stop_reason": "max_tokens"}},
        {"message": {"finish_reason": "length"}},
        {"message": {"stop_reason": "max_tokens"}},
        {"reply": {"finish_reason": "length"}},
        {"reply": {"stop_reason": "max_tokens"}},
        {"choice": {"finish_reason": {"type": "length", "length": 20}}},
        {"choice": {"finish_reason": "stop", "native_finish_reason": "MAX_TOKENS"}},
    ],
    ids=repr,
)
def test_an_answer_that_was_cut_is_truncated_wherever_the_server_says_so(place):
    assert read_reply(_ended(place), RULE).kind is FailureKind.TRUNCATED


@pytest.mark.parametrize(
    "place",
    [
        {"choice": {"finishReason": "OTHER"}},
        {"message": {"finish_reason": "abort"}},
        {"reply": {"stop_reason": "error"}},
        {"choice": {"finish_reason": {"type": "abort", "message": "no room"}}},
        {"choice": {"finish_reason": "stop", "native_finish_reason": "error"}},
        {"choice": {"finish_reason": "stop"}, "message": {"error": {"code": 502}}},
    ],
    ids=repr,
)
def test_an_answer_that_was_broken_off_is_none_wherever_the_server_says_so(place):
    body = _ended(place)
    assert not is_answer(body)
    assert read_reply(body, RULE).kind is FailureKind.HTTP_ERROR


@pytest.mark.parametrize(
    "place",
    [
        {"choice": {"finish_reason": "stop", "native_finish_reason": "completed"}},
        {"choice": {"finish_reason": "stop", "native_finish_reason": "some_new_word"}},
        {"choice": {"finish_reason": "stop", "stop_reason": 151645}},
        {"choice": {"stop_reason": 151645}},
        {"choice": {"finish_reason": {"type": "stop", "matched": 151645}}},
        {"reply": {"stop_reason": "end_turn"}},
    ],
    ids=repr,
)
def test_a_whole_answer_is_read_wherever_the_server_says_that_it_is_one(place):
    assert read_reply(_ended(place), RULE) == read_reply(reply(), RULE)


def _ended(place):
    """A reply with a verdict, and what else stands in its choice, its message and itself."""
    message = {"content": "Score: 7", **place.get("message", {})}
    choice = {"index": 0, "message": message, **place.get("choice", {})}
    return json.dumps({"choices": [choice], **place.get("reply", {})}).encode()


def test_a_part_that_refuses_is_a_refusal_whatever_stands_beside_it():
    parts = [{"type": "text", "text": "Score: 7"}, {"type": "refusal", "refusal": "I will not."}]
    assert read_reply(reply(parts), RULE).kind is FailureKind.REFUSED
    assert read_reply(reply(parts[1:]), RULE).kind is FailureKind.REFUSED


def test_no_verdict_is_read_from_a_part_that_is_a_thought():
    parts = [{"text": "Score: 2", "thought": True}, {"text": "Score: 7"}]
    assert read_reply(reply(parts), RULE).value == 7
    assert read_reply(reply(parts[:1]), RULE).kind is FailureKind.UNPARSEABLE


def test_one_part_without_a_list_and_a_byte_order_mark_are_read():
    assert read_reply(reply({"type": "text", "text": "Score: 7"}), RULE).value == 7
    assert read_reply(b"\xef\xbb\xbf" + reply(), RULE).value == 7


@pytest.mark.parametrize(
    "message",
    [
        '{"content": "Good \\ud83d\\nScore: 4"}',
        '{"content": "Score: 4", "reasoning": "\\udc00"}',
        '{"content": "Score: 4", "took_s": NaN, "least": -Infinity}',
    ],
)
def test_a_reply_in_json_that_only_some_libraries_read_has_its_verdict(message):
    """Node's gateways write half an emoji, Python's servers a log-probability of minus infinity."""
    body = f'{{"choices": [{{"message": {message}, "finish_reason": "stop"}}]}}'.encode()
    assert read_reply(body, VerdictRule(integer=(1, 5))).value == 4.0
    assert decode_reply(body[:-1]) is None
