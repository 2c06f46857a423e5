"""From a sample to the bytes that a judge is sent, and their key."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.config import Endpoint, Judge, VerdictRule
from zerowait.errors import ConfigError
from zerowait.judge import ChatRequest, Rubric, check_judge, load_rubric, request_for, request_key
from zerowait.judge.fence import GUARD
from zerowait.types import Abstain, FailureKind, Sample

ENDPOINT = Endpoint(base_url="http://127.0.0.1:1/v1", model="judge-1", api_key="sk-planted")
JUDGE = Judge(endpoints=[ENDPOINT], verdict=VerdictRule(integer=(1, 10)))
SAMPLE = Sample("What is 2+2?", "It is 4.", ground_truth="4", extra={"level": "easy"})
ALL = Rubric(
    "all",
    "1",
    "Judge.",
    "{{prompt}}|{{response}}|{{ground_truth}}|{{extra.level}}|{{reply_format}}",
)
RESPONSE_ONLY = Rubric("response only", "1", "Judge.", "{{response}}\n{{reply_format}}")


def body_of(sample=SAMPLE, judge=JUDGE, rubric=ALL, **options):
    request = request_for(sample, judge, rubric, **options)
    assert isinstance(request, ChatRequest), request
    return json.loads(request.body())


def user_text(sample, rubric=ALL):
    return body_of(sample, rubric=rubric)["messages"][1]["content"]


def test_a_request_says_who_is_asked_and_how_long_the_answer_may_be():
    body = body_of()
    assert {key: body[key] for key in ("model", "temperature", "max_tokens")} == {
        "model": "judge-1",
        "temperature": 0.0,
        "max_tokens": 1024,
    }
    assert [message["role"] for message in body["messages"]] == ["system", "user"]


def test_every_request_tells_the_judge_not_to_obey_the_material():
    assert body_of()["messages"][0]["content"] == f"Judge.\n\n{GUARD}"


def test_braces_in_the_texts_are_text():
    braces = "{{ground_truth}} {prompt} {{reply_format}}"
    text = user_text(msgspec.structs.replace(SAMPLE, prompt="{{response}}", response=braces))
    assert "\n{{response}}\n" in text
    assert "\n{{ground_truth}} {prompt} {{reply_format}}\n" in text


@pytest.mark.parametrize(
    ("sample", "missing"),
    [
        (msgspec.structs.replace(SAMPLE, ground_truth=None), "{{ground_truth}}"),
        (msgspec.structs.replace(SAMPLE, ground_truth=""), "{{ground_truth}}"),
        (msgspec.structs.replace(SAMPLE, ground_truth=[]), "{{ground_truth}}"),
        (msgspec.structs.replace(SAMPLE, ground_truth=[" "]), "{{ground_truth}}"),
        (msgspec.structs.replace(SAMPLE, ground_truth=float("nan")), "{{ground_truth}}"),
        (msgspec.structs.replace(SAMPLE, ground_truth=object()), "{{ground_truth}}"),
        (msgspec.structs.replace(SAMPLE, extra={}), "{{extra.level}}"),
        (msgspec.structs.replace(SAMPLE, extra={"level": None}), "{{extra.level}}"),
        (msgspec.structs.replace(SAMPLE, prompt=" "), "{{prompt}}"),
        (msgspec.structs.replace(SAMPLE, prompt=[]), "{{prompt}}"),
        (msgspec.structs.replace(SAMPLE, prompt=[{"role": "user"}]), "{{prompt}}"),
        (msgspec.structs.replace(SAMPLE, prompt=[{"content": 5}]), "{{prompt}}"),
    ],
)
def test_a_missing_value_abstains_and_is_named_and_never_an_empty_string(sample, missing):
    outcome = request_for(sample, JUDGE, ALL)
    assert isinstance(outcome, Abstain)
    assert outcome.kind is FailureKind.BAD_INPUT
    assert missing in outcome.detail
    assert "'all'" in outcome.detail


def test_a_value_that_the_rubric_does_not_show_may_be_missing():
    assert "It is 4." in user_text(Sample("", "It is 4."), RESPONSE_ONLY)


def test_an_empty_response_is_judged():
    assert ">>>\n\n<<<END RESPONSE" in user_text(Sample("p", ""), RESPONSE_ONLY)


class Array:
    """What numpy's and torch's arrays have in common."""

    def __init__(self, items):
        self.items = items

    def tolist(self):
        return self.items


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("4", "4"),
        (4, "4"),
        (4.5, "4.5"),
        (False, "False"),
        (["Paris", "paris, France"], "Paris\nparis, France"),
        (("Paris",), "Paris"),
        ({"target": "Paris", "also": [1, 2.5]}, '{"also":[1,2.5],"target":"Paris"}'),
        ([1, 2], "[1,2]"),
        (Array(["Paris"]), "Paris"),
        (Array(4), "4"),
        ({"target": Array(["a"])}, '{"target":["a"]}'),
        ({"b", "a"}, "a\nb"),
    ],
)
def test_a_ground_truth_of_any_type_has_one_text_form(value, shown):
    assert f">>>\n{shown}\n<<<END GROUND_TRUTH" in user_text(
        msgspec.structs.replace(SAMPLE, ground_truth=value)
    )


def test_a_single_message_is_its_text_and_a_conversation_names_its_speakers():
    one = [{"role": "user", "content": [{"type": "text", "text": "2+2?"}]}]
    assert ">>>\n2+2?\n<<<END PROMPT" in user_text(msgspec.structs.replace(SAMPLE, prompt=one))
    several = [
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]},
        {"role": "tool", "content": "4"},
    ]
    assert (
        '>>>\n[system]\nBe brief.\n\n[assistant]\n[{"function":{"name":"f"}}]\n\n[tool]\n4\n<<<'
    ) in user_text(msgspec.structs.replace(SAMPLE, prompt=several))


@given(prompt=st.text(st.characters()), response=st.text(st.characters()))
@settings(deadline=None)
def test_any_text_can_be_sent(prompt, response):
    request = request_for(Sample(prompt or "p", response), JUDGE, RESPONSE_ONLY)
    assert json.loads(request.body())["messages"]


def test_equal_requests_are_equal_bytes_whatever_the_order_of_parameters():
    one = msgspec.structs.replace(JUDGE, parameters={"top_p": 1, "seed": 2})
    two = msgspec.structs.replace(JUDGE, parameters={"seed": 2, "top_p": 1})
    assert request_for(SAMPLE, one, ALL).body() == request_for(SAMPLE, two, ALL).body()


def key(sample=SAMPLE, judge=JUDGE, rubric=ALL, vote=0):
    return request_key(request_for(sample, judge, rubric).body(), rubric.version, vote)


def test_everything_that_can_change_the_answer_changes_the_key():
    """A cache key without the model once shared ratings between models."""
    other_model = Endpoint(base_url=ENDPOINT.base_url, model="judge-2")
    change = msgspec.structs.replace
    keys = [
        key(),
        key(vote=1),
        key(sample=change(SAMPLE, response="It is 5.")),
        key(sample=change(SAMPLE, prompt="What is 2+3?")),
        key(sample=change(SAMPLE, ground_truth="5")),
        key(judge=change(JUDGE, endpoints=[other_model])),
        key(judge=change(JUDGE, temperature=0.5)),
        key(judge=change(JUDGE, max_tokens=2048)),
        key(judge=change(JUDGE, parameters={"top_p": 0.5})),
        key(judge=change(JUDGE, verdict=VerdictRule(integer=(1, 5)))),
        key(rubric=change(ALL, version="2")),
        key(rubric=change(ALL, system="Judge well.")),
    ]
    assert len(set(keys)) == len(keys)


def test_endpoint_and_key_are_in_neither_body_nor_key():
    elsewhere = Endpoint(base_url="https://elsewhere.example/v1", model="judge-1", api_key="sk-x")
    moved = msgspec.structs.replace(JUDGE, endpoints=[elsewhere])
    assert key() == key(judge=moved)
    assert b"sk-" not in request_for(SAMPLE, JUDGE, ALL).body()


def test_the_key_separates_version_and_vote():
    assert request_key(b"{}", "1", 11) != request_key(b"{}", "11", 1)
    assert len(request_key(b"{}", "1")) == 64


def test_a_seed_is_shifted_by_the_vote():
    seeded = msgspec.structs.replace(JUDGE, parameters={"seed": 7})
    assert [body_of(judge=seeded, vote=vote)["seed"] for vote in range(3)] == [7, 8, 9]
    assert seeded.parameters == {"seed": 7}


def test_more_tokens_can_be_asked_for():
    assert body_of(max_tokens=2048)["max_tokens"] == 2048


def test_the_newer_name_of_the_limit_replaces_the_older_one():
    newer = msgspec.structs.replace(JUDGE, parameters={"max_completion_tokens": 4096})
    request = request_for(SAMPLE, newer, ALL)
    assert request.max_tokens == 4096
    longer = msgspec.structs.replace(request, max_tokens=8192)
    body = json.loads(longer.body())
    assert body["max_completion_tokens"] == 8192
    assert "max_tokens" not in body


def test_another_limit_under_the_newer_name_is_an_error_that_says_where_it_goes():
    # it would be overwritten by max_tokens
    for fine in (None, JUDGE.max_tokens):
        check_judge(msgspec.structs.replace(JUDGE, parameters={"max_completion_tokens": fine}))
    wrong = msgspec.structs.replace(JUDGE, parameters={"max_completion_tokens": 9000})
    with pytest.raises(ConfigError, match=r"to 9000: give the judge max_tokens: 9000, and"):
        check_judge(wrong)


def test_a_null_parameter_is_left_out():
    bare = msgspec.structs.replace(JUDGE, parameters={"temperature": None})
    assert "temperature" not in body_of(judge=bare)


@pytest.mark.parametrize("name", ["model", "messages", "max_tokens", "stream", "n"])
def test_a_parameter_that_has_another_place_is_an_error(name):
    wrong = msgspec.structs.replace(JUDGE, parameters={name: 1})
    for uses in (check_judge, lambda judge: request_for(SAMPLE, judge, ALL)):
        with pytest.raises(ConfigError, match=f"parameters cannot set '{name}'"):
            uses(wrong)


def test_a_judge_is_checked_before_it_is_asked():
    check_judge(msgspec.structs.replace(JUDGE, parameters={"top_p": 0.5, "temperature": None}))
    with pytest.raises(ConfigError, match="cannot be told apart"):
        check_judge(msgspec.structs.replace(JUDGE, verdict=VerdictRule(choice=["yes", "Yes"])))


def test_a_sample_is_not_changed_by_being_judged():
    before = msgspec.json.encode(SAMPLE)
    request_for(SAMPLE, JUDGE, load_rubric("reference", base=Path()))
    assert msgspec.json.encode(SAMPLE) == before
