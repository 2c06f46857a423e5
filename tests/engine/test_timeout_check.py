"""A timeout that cuts long answers off is told of, before it makes abstentions of them."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait import Engine, Sample
from zerowait.client import Reply
from zerowait.engine.judging.timeout_check import TimeoutCheck
from zerowait.events import TimeoutTooShort
from zerowait.testing import virtually

answers = st.lists(st.tuples(st.integers(0, 500), st.floats(0.1, 100)), max_size=40)


def told(answers, *, max_tokens=16_384, timeout_s=300.0):
    events = []
    check = TimeoutCheck("q", max_tokens=max_tokens, timeout_s=timeout_s, listener=events.append)
    for tokens, latency_s in answers:
        check.answered(tokens, latency_s)
    return events


def test_forty_tokens_a_second_are_too_slow_for_16384_of_them_in_300_seconds(caplog):
    [event] = told([(400, 10.0)] * 100)
    assert event.needed_s == pytest.approx(409.6)
    assert (event.judge, event.timeout_s, event.tokens_per_s) == ("q", 300.0, 40.0)
    assert "max_tokens: 16384 take 410 s, and traffic.timeout_s is 300" in caplog.text
    assert told([(400, 10.0)] * 100, timeout_s=410) == []


def test_short_answers_say_nothing_about_long_ones():
    """Ten tokens after half a second are one prompt read, not twenty tokens a second."""
    assert told([(10, 0.5)] * 100, max_tokens=1024, timeout_s=30) == []


@given(answers, st.integers(1, 20_000), st.floats(1, 600))
def test_it_is_told_at_most_once_and_only_if_the_fastest_of_sixteen_is_too_slow(
    answers, max_tokens, timeout_s
):
    long = [tokens / latency_s for tokens, latency_s in answers if tokens >= 64][:16]
    expected = len(long) == 16 and max_tokens / max(long) > timeout_s
    assert len(told(answers, max_tokens=max_tokens, timeout_s=timeout_s)) == expected


def test_an_engine_tells_of_it_by_what_its_judge_reports():
    class Wire:
        async def send(self, request, *, timeout_s):
            await asyncio.sleep(10)
            message = {"choices": [{"message": {"content": "Score: 7"}}]}
            usage = {"usage": {"prompt_tokens": 5, "completion_tokens": 100}}
            return Reply(200, {}, json.dumps(message | usage).encode())

        async def aclose(self):
            pass

    events = []
    endpoint = {"base_url": "http://judge/v1", "model": "m"}
    config = {
        "components": {"quality": {"judge": "q"}},
        "judges": {
            "q": {"endpoints": [endpoint], "verdict": {"integer": [1, 10]}, "max_tokens": 1024}
        },
        "traffic": {"timeout_s": 60},
        "cache": "off",
    }

    async def main():
        async with Engine(config, transport=Wire(), listener=events.append) as engine:
            await engine.score_all([Sample("q", f"a {n}") for n in range(20)])

    virtually(main())
    [event] = [event for event in events if isinstance(event, TimeoutTooShort)]
    assert event.needed_s == pytest.approx(102.4)
