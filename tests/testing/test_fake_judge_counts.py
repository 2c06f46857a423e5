"""Determinism, and what the judge counts on its side of the wire."""

import asyncio
import hashlib
import random
import socket
import time
from collections import defaultdict

import aiohttp
import msgspec

from zerowait.testing import (
    Capacity,
    Empty,
    FakeJudge,
    Garbage,
    Hang,
    Latency,
    Length,
    OutOfRange,
    Refusal,
    Reset,
    Script,
    Seen,
    Status,
    TruncatedJson,
    WrongTypes,
)

EVERYTHING = Script(
    seed=11,
    latency=Latency(0.001, sigma=1.0),
    faults=(
        Status(status=429, share=0.1, retry_after_s=1),
        Status(status=500, share=0.1),
        Reset(share=0.1),
        TruncatedJson(share=0.1),
        WrongTypes(share=0.1),
        Empty(share=0.1),
        Length(share=0.1),
        Refusal(share=0.1),
        Garbage(share=0.1),
        OutOfRange(share=0.1),
    ),
)


def replies(client, script, bodies, *, at_once):
    """What each body got, in the order of its attempts."""
    with FakeJudge(script) as judge:
        gots = client.ask_all(judge.url, bodies, at_once=at_once)
    by_body = defaultdict(list)
    for body, got in zip(bodies, gots, strict=True):
        by_body[body].append((got.status, got.body, bool(got.error)))
    return by_body


def test_two_judges_with_one_script_send_the_same_bytes_in_whatever_order_they_are_asked(client):
    bodies = [client.chat(str(n)) for n in range(60)]
    shuffled = random.Random(1).sample(bodies, len(bodies))
    one = replies(client, EVERYTHING, bodies * 3, at_once=1)
    # a body's own attempts stay in order, which is all that counts
    two = replies(client, EVERYTHING, shuffled * 3, at_once=1)
    assert one == two
    assert len({status for gots in one.values() for status, _, _ in gots}) == 4


def test_two_judges_with_one_script_agree_when_they_are_asked_all_at_once(client):
    bodies = [client.chat(str(n)) for n in range(60)]
    one = replies(client, EVERYTHING, bodies, at_once=1)
    assert replies(client, EVERYTHING, bodies[::-1], at_once=20) == one


def test_another_seed_is_another_judge(client):
    bodies = [client.chat(str(n)) for n in range(30)]
    other = msgspec.structs.replace(EVERYTHING, seed=12)
    one = replies(client, EVERYTHING, bodies, at_once=1)
    assert replies(client, other, bodies, at_once=1) != one


def test_being_turned_away_for_capacity_does_not_use_up_an_attempt(client):
    async def work(judge):
        async with client.held(judge, [client.chat("a")]) as session:
            crowd = [await client.post(session, judge.url, client.chat("a")) for _ in range(4)]
        await client.until(lambda: not judge.seen.in_flight)
        return crowd

    with FakeJudge(Script(capacity=Capacity(concurrency=1), faults=(Hang(first=1),))) as judge:
        assert [got.status for got in asyncio.run(work(judge))] == [429] * 4
        assert client.ask(judge.url, "a").json["id"].endswith("-2")


def test_everything_is_counted_once(client):
    bodies = [client.chat(str(n % 20)) for n in range(60)]
    with FakeJudge(EVERYTHING) as judge:
        gots = client.ask_all(judge.url, bodies, at_once=7)
        seen = judge.seen
    whole = [got.status for got in gots if not got.error]
    assert seen.requests == 60
    assert seen.distinct_bodies == 20
    assert set(seen.asked_per_body.values()) == {3}
    assert seen.by_status == {status: whole.count(status) for status in set(whole)}
    assert seen.answered == 60 - sum(seen.by_fault.values())
    assert seen.by_fault["reset"] == 60 - len(whole)
    assert seen.in_flight == seen.cancelled_by_client == 0
    assert 1 <= seen.peak_in_flight <= 7


def test_a_body_is_known_by_the_digest_of_its_bytes(client):
    body = client.chat("a")
    with FakeJudge() as judge:
        client.ask(judge.url, body)
        assert judge.seen.asked_per_body == {hashlib.sha256(body).hexdigest(): 1}


def test_only_a_question_that_was_answered_counts_as_repeated(client):
    script = Script(faults=(Status(status=500, first=2),))
    with FakeJudge(script) as judge:
        client.ask_all(judge.url, [client.chat("a")] * 3)
        assert judge.seen.repeats == 0
        client.ask_all(judge.url, [client.chat("a")] * 2)
        assert judge.seen.repeats == 2


def test_a_reply_without_a_verdict_does_not_make_the_next_question_a_repeat(client):
    with FakeJudge(Script(faults=(Garbage(),))) as judge:
        client.ask_all(judge.url, [client.chat("a")] * 3)
        assert (judge.seen.by_status, judge.seen.answered) == ({200: 3}, 0)
        assert judge.seen.repeats == 0


def test_who_has_read_the_reply_finds_it_counted(client):
    async def work(judge):
        async with aiohttp.ClientSession() as session:
            for n in range(1, 101):
                await client.post(session, judge.url, client.chat(str(n)))
                seen = judge.seen
                assert (seen.answered, seen.in_flight) == (n, 0)

    with FakeJudge() as judge:
        asyncio.run(work(judge))


def test_the_peak_is_what_the_client_had_in_flight(client):
    async def work(judge):
        async with client.held(judge, [client.chat(str(n)) for n in range(6)]):
            assert judge.seen.in_flight == 6
        await client.until(lambda: not judge.seen.in_flight)

    with FakeJudge(Script(faults=(Hang(),))) as judge:
        asyncio.run(work(judge))
        assert (judge.seen.peak_in_flight, judge.seen.cancelled_by_client) == (6, 6)


def test_a_client_that_goes_away_frees_its_slot(client):
    async def work(judge):
        async with aiohttp.ClientSession() as session:
            gone = asyncio.create_task(client.post(session, judge.url, client.chat("a")))
            await client.until(lambda: judge.seen.in_flight)
            gone.cancel()
            await asyncio.wait([gone])
            return await client.post(session, judge.url, client.chat("a"))

    script = Script(capacity=Capacity(concurrency=1), faults=(Hang(first=1),))
    with FakeJudge(script) as judge:
        assert asyncio.run(work(judge)).status == 200
        seen = judge.seen
    assert seen.by_status == {200: 1}
    assert (seen.cancelled_by_client, seen.peak_in_flight) == (1, 1)


def test_a_client_that_goes_away_and_asks_elsewhere_at_once_is_never_two():
    """A limit of one that is kept must look kept, however the loop orders close and arrival."""

    def connect():
        port = int(judge.url.rsplit(":", 1)[1].removesuffix("/v1"))
        return socket.create_connection(("127.0.0.1", port))

    def arrived(n):
        while judge.seen.requests < n:
            time.sleep(0.0005)

    def ask(link, n):
        body = b'{"model": "m", "messages": [{"role": "user", "content": "%d"}]}' % n
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: j\r\nContent-Length: %d\r\n\r\n"
        link.sendall(head % len(body) + body)

    with FakeJudge(Script(latency=Latency(60), capacity=Capacity(concurrency=1))) as judge:
        held = connect()
        ask(held, 0)
        for n in range(1, 30):
            following = connect()
            arrived(n)
            held.close()
            ask(following, n)
            held = following
        arrived(30)
        held.close()
        assert judge.seen.peak_in_flight == 1
        assert judge.seen.by_status == {}


def test_the_statistics_page_says_the_same_as_the_snapshot(client):
    async def get(url):
        async with (
            aiohttp.ClientSession() as session,
            session.get(url.removesuffix("/v1") + "/stats") as response,
        ):
            return await response.read()

    with FakeJudge(EVERYTHING) as judge:
        client.ask_all(judge.url, [client.chat(str(n)) for n in range(10)])
        assert msgspec.json.decode(asyncio.run(get(judge.url)), type=Seen) == judge.seen
