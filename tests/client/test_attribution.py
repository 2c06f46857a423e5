"""Whose failure it is, in every server's words."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.attribution import LONGEST_WORDS, RULES, attributed, ending_of, shortened
from zerowait.client import Reply
from zerowait.client.headers import retry_after_s
from zerowait.client.retry import attribution, is_endpoint_fault, is_overload, is_spent
from zerowait.judge import decode_reply
from zerowait.types import POLICY_CAUSED, FailureKind

FOLDER = Path(__file__).with_name("provider_replies")
REPLIES = [
    pytest.param(each, id=f"{file.stem}: {each['name']}")
    for file in sorted(FOLDER.glob("*.json"))
    for each in json.loads(file.read_text("utf-8"))
]
SERVERS = {
    *("openai", "openai_responses", "azure", "vllm", "sglang", "tgi", "tensorrt_llm", "llama_cpp"),
    *("ollama", "litellm", "openrouter", "deepseek", "dashscope", "gemini", "anthropic", "mistral"),
    *("together", "fireworks"),
}


def is_answer(body, endings=()):
    completion = decode_reply(body, endings)
    return completion is not None and completion.failure is None


def sent(reply):
    body = reply["body"]
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def found(reply):
    has_wait = retry_after_s(reply["headers"], now_s=0.0) is not None
    return attributed(reply["status"], sent(reply), has_wait=has_wait)


def test_there_is_a_fixture_for_each_server():
    assert {file.stem for file in FOLDER.glob("*.json")} >= SERVERS


@pytest.mark.parametrize("reply", REPLIES)
def test_each_servers_failure_is_what_it_says(reply):
    told = found(reply)
    assert (told.kind.value, told.again, told.cause) == (
        reply["kind"],
        reply["again"],
        reply["cause"],
    )


@pytest.mark.parametrize("reply", REPLIES)
def test_the_providers_own_words_are_told_and_short(reply):
    words = found(reply).words
    assert reply["says"] in words
    assert len(words) <= LONGEST_WORDS + 100
    assert "\n" not in words


@pytest.mark.parametrize(
    ("field", "is_format"),
    [(["response_format"], True), (["response_format", "json_schema"], True), (["top_q"], False)],
)
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_validation_error_names_its_field_and_may_refuse_the_form(field, is_format, wrapped):
    """FastAPI's servers say which field it is in ``loc`` alone."""
    fault = {"type": "extra_forbidden", "loc": ["body", *field], "msg": "Extra inputs", "input": 1}
    body = {"detail": [fault]}
    body = {"object": "error", "message": body} if wrapped else body
    told = attributed(422, json.dumps(body).encode())
    assert told.about_format == is_format
    assert f"body.{'.'.join(field)}" in told.words


@pytest.mark.parametrize("reply", REPLIES)
def test_none_of_them_is_an_answer(reply):
    if reply["status"] == 200:
        assert not is_answer(sent(reply))


@pytest.mark.parametrize("reply", REPLIES)
def test_only_what_the_policys_text_can_cause_has_such_a_kind(reply):
    told = found(reply)
    assert (told.cause == "policy") == (told.kind in POLICY_CAUSED)


@pytest.mark.parametrize("reply", REPLIES)
def test_what_is_this_requests_or_the_accounts_matter_is_neither_overload_nor_breakdown(reply):
    told = found(reply)
    failed = Reply(told.status, reply["headers"], sent(reply), told)
    if told.again != "later":
        assert not is_overload(failed)
        assert not is_endpoint_fault(failed)
    assert is_spent(failed) == (told.again == "elsewhere")


@pytest.mark.parametrize("code", [429, "429", "rate_limit_exceeded", "RESOURCE_EXHAUSTED"])
def test_an_overload_told_in_a_200_counts_as_one(code):
    body = json.dumps({"choices": None, "error": {"code": code, "message": "busy"}}).encode()
    assert attributed(200, body).status == 429
    assert is_overload(Reply(200, {}, body))


@pytest.mark.parametrize(("code", "status"), [(502, 502), ("server_error", 500), ("E7", 500)])
def test_a_breakdown_told_in_a_200_counts_as_one(code, status):
    body = json.dumps({"choices": [], "error": {"code": code, "message": "gone"}}).encode()
    assert attributed(200, body).status == status
    assert is_endpoint_fault(Reply(200, {}, body))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'data: {"error": {"code": 429, "message": "busy"}}\n\ndata: [DONE]\n\n', 429),
        (b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}\n\n', 503),
        (b': waiting\r\n\r\ndata: {"error": {"code": 502}}\r\n\r\n', 502),
        (b'data: {"choices": [{"delta": {"content": "Score: 8"}}]}\n\ndata: [DONE]\n\n', 200),
    ],
)
def test_the_error_in_a_stream_that_nobody_asked_for_counts(body, status):
    assert attributed(200, body).status == status
    assert not is_answer(body)


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_without_quota_is_not_called_refused(status):
    body = b'{"error": {"code": "insufficient_user_quota", "message": "token quota is not enough"}}'
    told = attributed(status, body)
    assert told.again == "elsewhere"
    assert "the key was refused" not in told.words
    assert "the key was refused" in attributed(status, b'{"error": {"message": "bad token"}}').words


def test_a_body_of_another_api_is_shown_and_not_only_its_type():
    body = b'{"type": "message", "content": [{"type": "text", "text": "8"}], "stop_reason": null}'
    assert '"stop_reason": null' in attributed(200, body).words


def test_a_wait_that_is_named_makes_words_about_a_quota_a_matter_of_time():
    body = b'{"error": {"message": "You exceeded your current quota, check your billing details"}}'
    assert attributed(429, body).again == "elsewhere"
    assert attributed(429, body, has_wait=True).kind is FailureKind.RATE_LIMITED
    assert attribution(Reply(429, {"retry-after": "3"}, body)).kind is FailureKind.RATE_LIMITED
    hard = b'{"error": {"code": "insufficient_quota"}}'
    assert attribution(Reply(429, {"retry-after": "3"}, hard)).again == "elsewhere"


@pytest.mark.parametrize(
    "words",
    [
        "Incorrect API key provided: sk-proj-4fG7********************9aZ1.",
        "Bearer abcdefgh1234 is not valid",
        "Invalid key gsk_1234567890abcdef",
        "key AIzaSyA1234567890 is not valid",
        "token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sig is expired",
    ],
)
@pytest.mark.parametrize("status", [400, 401, 403, 200])
def test_what_looks_like_a_key_is_struck_out(words, status):
    told = attributed(status, json.dumps({"error": {"message": words}}).encode()).words
    assert "***" in told
    for part in ("9aZ1", "4fG7", "abcdefgh1234", "567890", "eyJ"):
        assert part not in told


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("\x1b[31mbad\x1b[0m model", "bad model"),
        ("bad\x00\x07 model", "bad model"),
        ("\ufeffbad\u202emodel\u2069", "bad model"),
    ],
)
def test_nothing_in_a_providers_words_steers_a_terminal(words, shown):
    assert shortened(words) == shown


def test_a_long_message_is_cut():
    assert len(shortened("word " * 1000)) == LONGEST_WORDS


@given(status=st.integers(-5, 2000), body=st.binary())
@settings(deadline=None)
def test_no_bytes_raise(status, body):
    attributed(status, body)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["error", "choices", "code", "message", "status", "type", "detail", "finish_reason"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(status=st.sampled_from([200, 400, 402, 429, 500]), tree=_json, finish=_json)
@settings(deadline=None)
def test_no_json_raises_and_none_of_it_becomes_an_answer(status, tree, finish):
    told = attributed(status, json.dumps(tree).encode())
    assert told.words
    ending_of(finish)


def test_a_deep_or_endless_body_is_looked_at_for_a_moment_only():
    deep = b'{"error":' * 5000 + b"1" + b"}" * 5000
    assert attributed(400, deep).kind is FailureKind.HTTP_ERROR
    inside = "x"
    for _ in range(12):
        inside = json.dumps({"error": {"message": inside}})
    assert attributed(400, inside.encode()).kind is FailureKind.HTTP_ERROR


def test_every_rule_has_a_reply_that_it_is_for():
    """A row of the table that no server's reply needs would be a guess."""
    used = set()
    for param in REPLIES:
        told = found(param.values[0])
        used.add((told.kind, told.again))
    assert {(rule.kind, rule.again) for rule in RULES} <= used
