"""A reply that comes as a stream of events, though none was asked for."""

import json

import pytest

from zerowait.client import EndpointStates, JudgeClient, Reply, Secret
from zerowait.client.stream import whole_reply
from zerowait.config import Endpoint, Traffic
from zerowait.config.schema import VerdictRule
from zerowait.judge import decode_reply, read_reply
from zerowait.testing import virtually
from zerowait.types import Score


class Answering:
    def __init__(self, body):
        self.body = body

    async def send(self, request, *, timeout_s):
        return Reply(200, {}, self.body)

    async def aclose(self):
        pass


def reply(text="Score: 7"):
    choice = {"index": 0, "message": {"content": text}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice]}).encode()


def events(*choices, between="\n\n"):
    lines = [f"data: {json.dumps({'choices': [each]})}" for each in choices]
    return between.join([*lines, "data: [DONE]", ""]).encode()


def delta(text="", finish=None, **more):
    return {"index": 0, "delta": {"content": text, **more}, "finish_reason": finish}


BEGINS = delta("Sco", role="assistant", reasoning_content="Score: 3")


@pytest.mark.parametrize(
    ("body", "means"),
    [
        (events(BEGINS, delta("re: 7"), delta(finish="stop")), 7),
        (events(BEGINS, delta("re: 7", "stop"), between="\r\n\r\n"), 7),
        (b": PROCESSING\n\n: PROCESSING\n\n" + reply(), 7),
        (b"data: " + reply() + b"\n\ndata: [DONE]\n\n", 7),
        (events({"index": 1, "delta": {"content": "Score: 3"}}, delta("Score: 7", "stop")), 7),
        (events(BEGINS, delta("re: 7", "length")), "truncated"),
        (events(BEGINS, delta("re: 7", "abort")), "http_error"),
        (events(BEGINS, delta("re: 1")), "unparseable"),  # "10" may have been cut
        (events(BEGINS, delta("re: 7", "stop")).replace(b"re: 7", b're: 7"'), "unparseable"),
        (events(delta("1"), delta("10", "stop")), "unparseable"),  # each with all the text so far
        (events(delta("Score: 7", "stop"), delta("", "content_filter")), "unparseable"),
        (b'data: {"error": {"code": 529}}\n\n' + events(delta("Score: 7", "stop")), "unparseable"),
        (b"data: [DONE]\n\n", "unparseable"),
        (b"data: 7\n\n", "unparseable"),
    ],
)
def test_a_stream_that_was_not_asked_for_is_read_when_it_has_an_end(body, means):
    outcome = read_reply(whole_reply(body) or body, VerdictRule(integer=(1, 10)))
    assert (outcome.value if isinstance(outcome, Score) else outcome.kind.value) == means


def test_a_stream_in_which_a_gateway_began_the_reply_anew_is_not_read():
    first, second = (events(delta(text, "stop")) for text in ("1", "0"))
    begun_anew = first.replace(b'{"choices"', b'{"id": "a", "choices"', 1) + second.replace(
        b'{"choices"', b'{"id": "b", "choices"', 1
    )
    assert whole_reply(begun_anew) is None
    assert whole_reply(begun_anew.replace(b'"id": "b"', b'"id": "a"')) is not None


def test_a_key_that_is_spread_over_the_events_of_a_stream_is_struck_out():
    body = events(delta("Bad key sk-plan"), delta("ted-0123456789.\nScore: 7", "stop"))
    sender = JudgeClient(
        endpoints=[Endpoint(base_url="http://judge/v1", model="m")],
        keys=[Secret("sk-planted-0123456789")],
        transport=Answering(body),
        endpoint_states=EndpointStates(Traffic()),
        decode=decode_reply,
    )
    answer, _ = virtually(sender.ask(b"{}"))
    assert answer.completion.text == "Bad key ***.\nScore: 7"
    assert b"planted" not in answer.reply.body
