"""Every fault, over a real socket."""

import asyncio
import json

import aiohttp
import pytest

from zerowait.config import VerdictRule
from zerowait.testing import (
    Capacity,
    Empty,
    FakeJudge,
    Garbage,
    Hang,
    Length,
    OutOfRange,
    Refusal,
    Reset,
    Script,
    Status,
    TruncatedJson,
    WrongTypes,
    verdict_for,
)


def messages(text):
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize("status", [400, 429, 500, 502, 503])
def test_an_error_status_comes_with_an_error_body(client, status):
    with FakeJudge(Script(faults=(Status(status=status),))) as judge:
        got = client.ask(judge.url, "a")
    assert got.status == status
    assert got.json["error"]["message"]
    assert "Retry-After" not in got.headers


def test_an_error_status_names_the_wait_that_the_script_names(client):
    with FakeJudge(Script(faults=(Status(status=503, retry_after_s=1.5),))) as judge:
        assert client.ask(judge.url, "a").headers["Retry-After"] == "1.5"


def test_after_the_first_attempts_the_question_is_answered(client):
    with FakeJudge(Script(faults=(Status(status=503, first=2),))) as judge:
        gots = client.ask_all(judge.url, [client.chat("a")] * 4)
    assert [got.status for got in gots] == [503, 503, 200, 200]


@pytest.mark.parametrize("sent", ["nothing", "headers", "half"])
@pytest.mark.parametrize("graceful", [True, False])
def test_a_broken_connection_is_an_error_and_the_next_question_is_answered(client, sent, graceful):
    script = Script(faults=(Reset(sent=sent, graceful=graceful, first=1),))
    with FakeJudge(script) as judge:
        gots = client.ask_all(judge.url, [client.chat("a")] * 2)
        seen = judge.seen
    # aiohttp itself asks once more when a connection closes before the first byte of a reply
    assert gots[0].error or seen.requests == 3
    assert gots[1].status == 200
    assert seen.by_fault == {"reset": 1}
    assert seen.in_flight == 0


def test_a_reset_in_the_middle_lets_the_headers_and_a_part_of_the_body_through():
    async def work(url):
        body = {"model": "m", "messages": messages("a")}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{url}/chat/completions", json=body) as response,
        ):
            assert response.status == 200
            part = await response.content.readany()
            with pytest.raises(aiohttp.ClientError):
                await response.content.read()
            return part, response.content_length

    with FakeJudge(Script(faults=(Reset(sent="half", graceful=True),))) as judge:
        part, length = asyncio.run(work(judge.url))
    assert 0 < len(part) < length


def test_a_truncated_body_is_a_whole_reply_that_is_no_json(client):
    with FakeJudge(Script(faults=(TruncatedJson(),))) as judge:
        gots = client.ask_all(judge.url, [client.chat(str(n)) for n in range(10)])
    for got in gots:
        assert got.status == 200
        with pytest.raises(json.JSONDecodeError):
            json.loads(got.body)
    assert len({len(got.body) for got in gots}) > 1


def test_wrong_types_are_json_without_a_text_where_the_content_belongs(client):
    with FakeJudge(Script(faults=(WrongTypes(),))) as judge:
        gots = client.ask_all(judge.url, [client.chat(str(n)) for n in range(40)])
    forms = set()
    for got in gots:
        forms.add(str(type(got.json)))
        with pytest.raises((KeyError, TypeError, IndexError, AssertionError)):
            assert isinstance(got.json["choices"][0]["message"]["content"], str)
    assert len(forms) == 3


def test_an_empty_reply_is_empty_blank_or_null(client):
    with FakeJudge(Script(faults=(Empty(),))) as judge:
        gots = client.ask_all(judge.url, [client.chat(str(n)) for n in range(20)])
    assert {got.content for got in gots} == {"", " \n", None}
    assert {got.finish_reason for got in gots} == {"stop"}


def test_a_reply_that_was_too_long_never_holds_the_right_verdict(client):
    script = Script(seed=2, faults=(Length(),))
    with FakeJudge(script) as judge:
        texts = [str(n) for n in range(20)]
        bodies = [client.chat(text, max_tokens=16) for text in texts]
        gots = client.ask_all(judge.url, bodies)
    assert {got.finish_reason for got in gots} == {"length"}
    assert {got.json["usage"]["completion_tokens"] for got in gots} == {16}
    assert any(got.content.isdigit() for got in gots)
    for text, got in zip(texts, gots, strict=True):
        assert got.content != verdict_for(script, messages(text))


def test_a_reply_that_was_too_long_is_right_with_more_tokens(client):
    script = Script(faults=(Length(cured_at=32, thinking=True),))
    with FakeJudge(script) as judge:
        bodies = [client.chat("a", max_tokens=tokens) for tokens in (16, 32)]
        short, long = client.ask_all(judge.url, bodies)
    assert (short.content, short.finish_reason) == (None, "length")
    assert short.json["choices"][0]["message"]["reasoning_content"]
    assert (long.content, long.finish_reason) == (verdict_for(script, messages("a")), "stop")


@pytest.mark.parametrize("form", ["field", "text", "filter"])
def test_a_refusal_is_in_the_field_in_the_text_or_in_the_finish_reason(client, form):
    with FakeJudge(Script(faults=(Refusal(form=form),))) as judge:
        got = client.ask(judge.url, "a")
    refusal = got.json["choices"][0]["message"]["refusal"]
    assert bool(refusal) is (form == "field")
    assert bool(got.content) is (form == "text")
    assert got.finish_reason == ("content_filter" if form == "filter" else "stop")


def test_mixed_refusals_come_in_all_forms(client):
    with FakeJudge(Script(faults=(Refusal(),))) as judge:
        gots = client.ask_all(judge.url, [client.chat(str(n)) for n in range(30)])
    forms = {(got.finish_reason, got.content is None) for got in gots}
    assert forms == {("stop", True), ("stop", False), ("content_filter", False)}


def test_garbage_stays_garbage_however_it_is_asked_again(client):
    script = Script(seed=5, faults=(Garbage(share=0.5),))
    with FakeJudge(script) as judge:
        for text in map(str, range(10)):
            again = [client.chat(text), client.chat(text), client.chat(text, max_tokens=99)]
            gots = client.ask_all(judge.url, again)
            assert len({got.content for got in gots}) == 1
        seen = judge.seen
    assert 0 < seen.by_fault["garbage"] < 30
    assert seen.answered == 30 - seen.by_fault["garbage"]


@pytest.mark.parametrize(
    "rule",
    [
        VerdictRule(integer=(1, 10)),
        VerdictRule(number=(0.0, 1.0)),
        VerdictRule(choice=["yes", "no"]),
    ],
)
def test_a_verdict_out_of_range_is_one_that_the_rule_does_not_allow(client, rule):
    with FakeJudge(Script(verdict=rule, faults=(OutOfRange(),))) as judge:
        content = client.ask(judge.url, "a").content
    if rule.choice is not None:
        assert content not in rule.choice
    else:
        low, high = rule.integer or rule.number
        assert not low <= float(content) <= high


@pytest.mark.parametrize("sent", ["nothing", "headers", "half"])
def test_a_judge_that_hangs_is_left_by_the_client_and_forgets_it(client, sent):
    async def work(judge):
        async with aiohttp.ClientSession() as session:
            waits = asyncio.create_task(client.post(session, judge.url, client.chat("a")))
            await client.until(lambda: judge.seen.in_flight)
            await asyncio.sleep(0.1)
            assert not waits.done()
            waits.cancel()
            await asyncio.wait([waits])
        await client.until(lambda: not judge.seen.in_flight)

    with FakeJudge(Script(faults=(Hang(sent=sent),))) as judge:
        asyncio.run(work(judge))
        assert judge.seen.cancelled_by_client == 1
        assert judge.seen.by_status == {}


def test_one_more_at_once_than_the_cap_is_turned_away(client):
    async def work(judge):
        async with client.held(judge, [client.chat(str(n)) for n in range(3)]) as session:
            return await client.post(session, judge.url, client.chat("one more"))

    capacity = Capacity(concurrency=3, retry_after_s=2)
    with FakeJudge(Script(capacity=capacity, faults=(Hang(),))) as judge:
        got = asyncio.run(work(judge))
        seen = judge.seen
    assert got.status == 429
    assert got.headers["Retry-After"] == "2"
    assert seen.by_fault == {"capacity": 1}


def test_a_rate_limited_judge_says_how_much_is_left_and_when_to_come_back(client):
    # two at once, and the next in fifty minutes: however slow the client is, it comes too soon
    script = Script(capacity=Capacity(rpm=0.02, tpm=60, burst_s=6000))
    with FakeJudge(script) as judge:
        gots = client.ask_all(judge.url, [client.chat(str(n)) for n in range(3)])
    assert [got.status for got in gots] == [200, 200, 429]
    left = [got.headers["x-ratelimit-remaining-requests"] for got in gots]
    assert left == ["1", "0", "0"]
    assert all(int(got.headers["x-ratelimit-remaining-tokens"]) <= 6000 for got in gots)
    assert 1 <= int(gots[2].headers["Retry-After"]) <= 3000
    assert float(gots[2].headers["retry-after-ms"]) <= 3_000_000
