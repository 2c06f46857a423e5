"""The responses API: the same question in its words, and its replies read as any other."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.config import VerdictRule
from zerowait.judge import (
    ChatRequest,
    decode_reply,
    read_reply,
)
from zerowait.judge.responses import responses_body
from zerowait.types import Score

RULE = VerdictRule(integer=(1, 10))
MESSAGES = [{"role": "system", "content": "You judge."}, {"role": "user", "content": "2+2=4"}]


def is_answer(body, endings=()):
    completion = decode_reply(body, endings)
    return completion is not None and completion.failure is None


def asked(**parameters):
    """What goes over the wire for a request with these parameters."""
    return json.loads(responses_body(ChatRequest("m", MESSAGES, 0.0, 100, parameters).body()))


def reply(*output, status="completed", **fields):
    return json.dumps({"object": "response", "status": status, "output": output} | fields).encode()


def message(text, **fields):
    return {"type": "message", "content": [{"type": "output_text", "text": text} | fields]}


def told(body):
    outcome = read_reply(body, RULE)
    return outcome.value if isinstance(outcome, Score) else outcome.kind.value


def test_the_request_says_the_same_in_other_words():
    assert asked(top_p=0.5) == {
        "model": "m",
        "instructions": "You judge.",
        "input": [{"role": "user", "content": "2+2=4"}],
        "max_output_tokens": 100,
        "temperature": 0.0,
        "top_p": 0.5,
        "store": False,
    }


@pytest.mark.parametrize(
    ("parameters", "fields"),
    [
        ({"max_completion_tokens": 7}, {"max_output_tokens": 100}),
        ({"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}),
        (
            {"response_format": {"type": "json_object"}},
            {"text": {"format": {"type": "json_object"}}},
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "v", "strict": True, "schema": {"type": "object"}},
                },
                "verbosity": "low",
            },
            {
                "text": {
                    "format": {
                        "type": "json_schema",
                        "name": "v",
                        "strict": True,
                        "schema": {"type": "object"},
                    },
                    "verbosity": "low",
                }
            },
        ),
        ({"store": True}, {"store": True}),
        ({"service_tier": "flex"}, {"service_tier": "flex"}),
    ],
)
def test_parameters_go_where_that_api_has_them(parameters, fields):
    body = asked(**parameters)
    assert {name: body[name] for name in fields} == fields
    moved = {"max_completion_tokens", "max_tokens", "response_format", "reasoning_effort"}
    assert not moved & set(body)


def test_a_temperature_that_is_not_to_be_sent_is_not_sent():
    assert "temperature" not in asked(temperature=None)


@pytest.mark.parametrize(
    "body",
    [
        reply(message("Score: 7")),
        reply({"type": "reasoning", "summary": [{"text": "Score: 3"}]}, message("Score: 7")),
        reply(message("Good.\nSco"), message("re: 7")),
        reply({"type": "reasoning"}, output_text="Score: 7"),
        json.dumps({"output": [message("Score: 7")]}).encode(),
    ],
)
def test_every_shape_of_response_with_a_verdict_is_a_score(body):
    assert told(body) == 7.0


CUT = {"reason": "max_output_tokens"}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (reply(message("Score: 1"), status="incomplete", incomplete_details=CUT), "truncated"),
        (reply({"type": "reasoning"}, status="incomplete", incomplete_details=CUT), "truncated"),
        (reply(status="incomplete", incomplete_details=CUT), "truncated"),
        (
            reply(
                message("Score: 7"),
                status="incomplete",
                incomplete_details={"reason": "content_filter"},
            ),
            "refused",
        ),
        (reply({"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}), "refused"),
        (reply(message("I'm sorry, but I can't help with that.")), "refused"),
        (reply(message("Score: 11")), "out_of_range"),
        (reply(message("Score: 7\nThe reasons"), status="incomplete"), "truncated"),
        (
            reply({"type": "function_call", "name": "rate", "arguments": '{"score": 7}'}),
            "unparseable",
        ),
        (reply(message("Score: 7"), error={"code": "server_error", "message": "?"}), "http_error"),
        (
            reply(
                message("Score: 7"), status="incomplete", incomplete_details={"reason": "paused"}
            ),
            "http_error",
        ),
        (reply(message("Score: 7") | {"status": "incomplete"}), "truncated"),
        (reply(message("")), "unparseable"),
        (reply({"type": "message", "content": "Score: 7"}), "unparseable"),
        (reply({"type": "message", "content": [7, None]}), "unparseable"),
        (reply(7), "unparseable"),
    ],
)
def test_what_is_no_verdict_abstains_as_in_chat(body, kind):
    assert told(body) == kind


@pytest.mark.parametrize("status", ["failed", "cancelled", "in_progress", "queued", 7])
def test_a_response_without_an_answer_is_asked_for_again(status):
    assert not is_answer(reply(message("Score: 7"), status=status))


def test_a_response_without_output_is_asked_for_again_unless_it_was_cut():
    assert not is_answer(reply())
    assert is_answer(reply(status="incomplete"))


def test_usage_and_model_are_read():
    usage = {"input_tokens": 12, "output_tokens": 3, "total_tokens": 15}
    body = reply(message("7"), usage=usage, model="m-2026")
    completion = decode_reply(body)
    assert (completion.prompt_tokens, completion.completion_tokens) == (12, 3)
    assert (completion.model, completion.fingerprint) == ("m-2026", "")
    assert decode_reply(reply(message("7"), usage="much")).prompt_tokens == 0


def anything():
    leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["type", "content", "text", "refusal", "arguments", "reason"]),
                inner | st.sampled_from(["message", "output_text", "refusal", "function_call"]),
                max_size=4,
            )
        ),
        max_leaves=12,
    )


@settings(deadline=None, max_examples=60)
@given(st.lists(anything(), max_size=4), anything(), anything(), anything())
def test_no_response_raises(output, status, details, usage):
    body = reply(*output, status=status, incomplete_details=details, usage=usage, model=details)
    read_reply(body, RULE)
    decode_reply(body)
