"""What a judge's reply is taken for, and which replies are kept."""

import asyncio
import json
import sqlite3
from contextlib import closing

import pytest

from zerowait import Abstain, Engine, Sample, Score
from zerowait.client import Reply
from zerowait.completion import Completion
from zerowait.engine.judging.cached_judge import read_safely
from zerowait.events import JudgementSettled
from zerowait.testing import virtually


class Wire:
    """A judge on the wire that always sends `replies` in turn."""

    def __init__(self, *replies):
        self.replies = replies
        self.sent = 0

    async def send(self, request, *, timeout_s):
        self.sent += 1
        return self.replies[(self.sent - 1) % len(self.replies)]

    async def aclose(self):
        pass


def said(content, finish="stop", status=200):
    choice = {"message": {"content": content}, "finish_reason": finish}
    return Reply(status, {}, json.dumps({"choices": [choice], "model": "m"}).encode())


@pytest.mark.parametrize(
    "error", [KeyError("score"), ValueError("no number"), RecursionError(), AttributeError("x")]
)
def test_a_reply_that_its_reader_trips_over_is_no_verdict_and_no_nought(error):
    def read(_):
        raise error

    outcome = read_safely(read, Completion())
    assert isinstance(outcome, Abstain)
    assert outcome.kind == "unparseable"
    assert type(error).__name__ in outcome.detail


@pytest.mark.parametrize(
    "reply",
    [
        said("no idea"),
        said(""),
        said("Score: 11"),
        said("Score: -1"),
        said("I cannot help with that."),
        said("Score: 7", status=400),
        said("", finish="length"),
        Reply(200, {}, b"<html>Score: 7</html>"),
        Reply(200, {}, b'{"choices": []}'),
    ],
    ids=lambda reply: reply.body[:60].decode(),
)
def test_only_a_reply_with_a_validated_verdict_is_kept(tmp_path, reply):
    """A failure that is kept is a failure for ever, and for every run."""
    path = tmp_path / "cache.db"
    config = {
        "components": {"quality": {"judge": "q"}},
        "judges": {
            "q": {
                "endpoints": [{"base_url": "http://judge/v1", "model": "m"}],
                "verdict": {"integer": [1, 10]},
            }
        },
        "traffic": {"attempts": 1, "hedge": "off"},
        "cache": {"path": str(path)},
    }

    def scored(wire):
        async def main():
            async with Engine(config, transport=wire) as engine:
                return (await engine.score(Sample("q", "a"))).components["quality"]

        outcome = asyncio.run(main())
        with closing(sqlite3.connect(path)) as cache:
            (entries,) = cache.execute("SELECT count(*) FROM replies").fetchone()
        return outcome, entries

    outcome, entries = scored(Wire(reply))
    assert isinstance(outcome, Abstain)
    assert entries == 0
    outcome, entries = scored(Wire(said("Score: 7")))
    assert isinstance(outcome, Score)
    assert (outcome.value, entries) == (7, 1)


@pytest.mark.parametrize(
    ("replies", "kind", "attempts"),
    [
        ([said("", finish="length"), said("", status=500)], "truncated", 3),
        ([said("", finish="length"), said("", finish="length")], "truncated", 2),
        ([said("", status=500)], "http_error", 2),
        ([said("", status=400)], "http_error", 1),
    ],
    ids=["the second request fails", "it is cut, too", "two attempts", "one attempt"],
)
def test_the_event_of_an_abstention_has_every_attempt(replies, kind, attempts):
    """The second request for a cut reply is counted where it fails, and so is a lone failure."""
    config = {
        "components": {"quality": {"judge": "q"}},
        "judges": {
            "q": {
                "endpoints": [{"base_url": "http://judge/v1", "model": "m"}],
                "verdict": {"integer": [1, 10]},
            }
        },
        "traffic": {"attempts": 2, "hedge": "off"},
        "cache": "off",
    }
    wire, events = Wire(*replies[:-1], *[replies[-1]] * 9), []

    async def main():
        async with Engine(config, transport=wire, listener=events.append) as engine:
            await engine.score(Sample("q", "a"))

    virtually(main())
    (settled,) = (event for event in events if isinstance(event, JudgementSettled))
    assert (settled.outcome.kind, settled.attempts) == (kind, attempts)
    assert wire.sent == attempts
