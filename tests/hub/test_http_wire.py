"""JSON of the HTTP service: a round trip changes nothing, and wrong input is refused."""

import numpy as np
import pytest

from zerowait import (
    Abstain,
    ConfigError,
    DataError,
    JudgementError,
    Reward,
    Sample,
    Score,
    Skipped,
    TurnReward,
)
from zerowait.errors import ZerowaitError
from zerowait.hub import Streamed
from zerowait.hub.http import wire
from zerowait.pictures import with_urls

REWARD = Reward(
    None,
    {"a": Score(1.0, "why", {"x": [1]}), "b": Abstain("timeout", "60 s"), "c": Skipped("gate")},
    {"a/scored": 1.0},
    "neutral",
    "b: timeout",
)


def decoded(query, prompts, labels=None, **constants):
    return wire.decode_openrlhf(
        wire.encode({"query": query, "prompts": prompts, "labels": labels}), constants
    )


def test_a_reward_arrives_as_it_was_sent():
    streamed = Streamed(substitute=0.5, reward=REWARD, substitute_from="group")
    answer = wire.decode_answer(wire.encode_result(7, streamed))
    assert (answer.id, answer.streamed) == (7, streamed)
    assert b'"stand_in":"group"' in wire.encode_result(7, streamed)  # its name over HTTP stays


def test_a_sample_arrives_as_it_was_sent():
    sample = Sample(
        [{"role": "user", "content": "é\n"}], "r", ["x"], extra={"k": [1]}, group="g", step=3
    )
    call = wire.decode_call(wire.encode_call(3, wire.call_for(sample)))
    assert (call.id, wire.decode_sample(call.sample)) == (3, sample)
    assert not call.cancelled
    assert wire.decode_call(wire.encode_cancel(3)).cancelled


def test_an_episode_arrives_as_messages_and_its_turns_rewards_come_back():
    episode = [{"role": "assistant", "content": "a", "last_token": 3}]
    [[sample], _] = wire.decode_samples(wire.encode([{"prompt": "p", "response": episode}]))
    assert sample == Sample("p", episode)
    assert wire.decode_sample(wire.encode(sample)) == sample
    turn = TurnReward(None, {"q": Abstain("timeout", "60 s")}, 0, 3)
    streamed = Streamed(reward=Reward(None, {}, turns=(turn,)))
    assert wire.decode_answer(wire.encode_result(7, streamed)).streamed == streamed


def test_a_picture_in_bytes_arrives_though_json_has_none():
    png = b"\x89PNG\r\n\x1a\nrest"
    prompt = [{"role": "user", "content": [{"type": "image", "image": png}]}]
    got = wire.decode_sample(wire.encode(Sample(prompt, "r")))
    assert with_urls(got.prompt) == with_urls(prompt)


def test_numpy_values_travel_as_numbers_and_lists():
    sent = wire.encode(Sample("p", "r", np.float32(0.5), extra={"ids": np.arange(2)}))
    got = wire.decode_sample(sent)
    assert (got.ground_truth, got.extra) == (0.5, {"ids": [0, 1]})


def test_a_value_that_json_cannot_carry_is_an_error_and_no_text_about_it():
    with pytest.raises(DataError, match="a object is no JSON value"):
        wire.encode(Sample("p", "r", object()))


@pytest.mark.parametrize("error", [DataError("row 3"), JudgementError("lost"), ConfigError("key")])
def test_an_error_is_the_same_error_at_the_other_end(error):
    got = wire.exception_of(wire.decode_answer(wire.encode_error(1, error)).error)
    assert type(got) is type(error)
    assert str(got) == str(error)


def test_an_error_of_an_unknown_class_is_a_zerowait_error():
    assert type(wire.exception_of(wire.WireError("OSError", "x"))) is ZerowaitError


def test_an_error_body_is_one_line():
    assert wire.error_message(wire.error_body(DataError("two\nlines"))) == "two lines"
    assert wire.error_message(b"<html>\n502</html>") == "<html> 502</html>"


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"3", "the sample must be an object"),
        (b'[{"prompt": "p", "response": "r"}, 4]', r"\[1\] must be an object"),
        (b'{"prompt": "p"}', "the sample: .*response"),
        (b'{"prompt": "p", "respones": "r"}', "'respones'.*did you mean 'response'"),
        (b'{"prompt": "p", "response": 3}', "the sample: .*str"),
    ],
)
def test_what_is_no_sample_is_refused_in_one_clear_line(body, complaint):
    with pytest.raises(DataError, match=complaint):
        wire.decode_samples(body)


def test_one_sample_is_distinguished_from_a_list_of_one():
    row = b'{"prompt": "p", "response": "r"}'
    assert wire.decode_samples(row) == ([Sample("p", "r")], False)
    assert wire.decode_samples(b"[%b]" % row) == ([Sample("p", "r")], True)
    assert wire.decode_samples(b"[]") == ([], True)


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "<|im_end|>",
        "<|im_end|>\n<|endoftext|>",
        "</s>",
        "<eos><pad><pad>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
    ],
)
def test_a_response_is_the_query_without_its_prompt_and_special_ending(ending):
    [sample] = decoded([f"<s>Q: 2+2?\nA: 4{ending}"], ["Q: 2+2?\n"], ["4"])
    assert (sample.prompt, sample.response) == ("Q: 2+2?\n", "A: 4")
    assert sample.ground_truth == "4"


def test_special_tokens_inside_a_response_stay():
    [sample] = decoded(["Q<|think|>A <b>"], ["Q"])
    assert sample.response == "<|think|>A <b>"


def test_constants_of_the_url_are_fields_of_every_sample():
    [sample] = decoded(["QA"], ["Q"], data_source="gsm8k", split="validation")
    assert (sample.data_source, sample.split) == ("gsm8k", "validation")


@pytest.mark.parametrize(
    ("arguments", "constants", "complaint"),
    [
        ((["A"], ["Q"]), {}, r"query\[0\] does not hold prompts\[0\]"),
        ((["QA"], ["Q", "Q"]), {}, "1 queries, 2 prompts and 1 labels"),
        ((["QA"], ["Q"], []), {}, "1 queries, 1 prompts and 0 labels"),
        ((["QA"], ["Q"]), {"data_sauce": "x"}, "'data_sauce'.*did you mean 'data_source'"),
        (("QA", ["Q"]), {}, 'the body is not {"query"'),
    ],
)
def test_a_request_that_is_not_openrlhfs_is_refused(arguments, constants, complaint):
    with pytest.raises(DataError, match=complaint):
        decoded(*arguments, **constants)


def test_an_abstention_is_the_number_that_the_user_chose_or_an_error_and_never_0():
    rewards = [Reward(1.0, {}, {"a/scored": 1.0}), REWARD]
    values = [wire.openrlhf_value(reward, -0.5) for reward in rewards]
    answer = wire.openrlhf_reply(rewards, values)
    assert answer["rewards"] == answer["scores"] == [1.0, -0.5]
    assert answer["extra_logs"] == {"abstained": [0.0, 1.0], "a/scored": [1.0, 1.0]}
    with pytest.raises(JudgementError, match="b: timeout"):
        wire.openrlhf_value(rewards[1], None)


def test_a_metric_that_some_row_does_not_have_is_left_out_of_openrlhfs_numbers():
    rewards = [
        Reward(1.0, {}, {"a/scored": 1.0, "a/logic": 7.0}),
        Reward(1.0, {}, {"a/scored": 0.0, "a/logic": None}),
    ]
    answer = wire.openrlhf_reply(rewards, [1.0, 1.0])
    assert answer["extra_logs"] == {"abstained": [0.0, 0.0], "a/scored": [1.0, 0.0]}
