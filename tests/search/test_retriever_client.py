"""The retriever's client on a clock that jumps, over a wire that does what each test says."""

import asyncio
import json
import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.client import Reply, ReplyTooLongError, TransportError
from zerowait.errors import ConfigError
from zerowait.search import Failed, Passage, Retriever, RetrieverSettings
from zerowait.search.wire import reply_body
from zerowait.testing import virtually
from zerowait.types import FailureKind

DOWN = TransportError(FailureKind.UNREACHABLE, "no connection", sent=False)


def found_for(queries):
    return Reply(200, {}, reply_body([[Passage(f"T\n{q}")] for q in queries], scores=True))


class Wire:
    """Answers request n with `replies[n]`, and then with passages; every answer takes `latency_s`.

    A reply is what comes back or is raised, or a function of the queries.
    """

    def __init__(self, *replies, latency_s=0.2):
        self.latency_s = latency_s
        self.replies = list(replies)
        self.seen, self.at_s = [], []
        self.now = self.peak = 0

    async def send(self, request, *, timeout_s):
        queries = json.loads(request.body)["queries"]
        self.seen.append(queries)
        self.at_s.append(asyncio.get_running_loop().time())
        reply = self.replies.pop(0) if self.replies else found_for
        self.now += 1
        self.peak = max(self.peak, self.now)
        try:
            await asyncio.sleep(min(self.latency_s, timeout_s))
        finally:
            self.now -= 1
        if timeout_s < self.latency_s:
            raise TransportError(FailureKind.TIMEOUT, f"no complete reply in {timeout_s:g} s")
        reply = reply(queries) if callable(reply) else reply
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def aclose(self):
        pass


def using(wire, scenario, **options):
    """The result of `scenario(retriever)` and the virtual seconds that it took."""

    async def main():
        client = RetrieverSettings(**options)
        async with Retriever(client, transport=wire, jitter=Random(1)) as retriever:
            return await scenario(retriever)

    return virtually(main())


def texts(results):
    return [r if isinstance(r, Failed) else [p.contents for p in r] for r in results]


async def after(seconds, coroutine):
    await asyncio.sleep(seconds)
    return await coroutine


def test_what_comes_while_every_request_is_under_way_leaves_together_in_the_next_one():
    async def scenario(retriever):
        async with asyncio.TaskGroup() as tasks:
            for number in range(7):
                tasks.create_task(after(number / 100, retriever.find([f"q{number}"])))

    wire = Wire()
    _, took_s = using(wire, scenario, concurrency=2, batch=4)
    assert wire.seen == [["q0"], ["q1"], ["q2", "q3", "q4", "q5"], ["q6"]]
    assert wire.peak == 2
    assert took_s == pytest.approx(0.41)  # q6 left when the second request came back


def test_a_query_whose_caller_left_before_it_did_is_not_asked():
    async def scenario(retriever):
        first = asyncio.create_task(retriever.find(["first"]))
        left, stayed = [
            asyncio.create_task(after(0.01, retriever.find([q]))) for q in ("left", "stayed")
        ]
        await asyncio.sleep(0.05)
        left.cancel()
        await asyncio.wait([first, stayed])

    wire = Wire()
    using(wire, scenario, concurrency=1)
    assert wire.seen == [["first"], ["stayed"]]


def test_a_cancelled_query_that_had_been_sent_is_cached():
    async def scenario(retriever):
        left = asyncio.create_task(retriever.find(["q"]))
        await asyncio.sleep(0.1)
        left.cancel()
        await asyncio.sleep(0.2)
        return await retriever.find(["q"])

    wire = Wire()
    found, _ = using(wire, scenario)
    assert texts(found) == [["T\nq"]]
    assert wire.seen == [["q"]]


def test_a_joiner_keeps_its_own_deadline():
    """The first caller may wait 1 s and its query's answer takes 0.9 s; who joins at 0.5 s may
    wait until 1.5 s."""

    async def scenario(retriever):
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(retriever.find(["q"]))
            second = tasks.create_task(after(0.5, retriever.find(["q"])))
        return first.result(), second.result(), retriever.stats

    wire = Wire(latency_s=0.9)
    (first, second, stats), took_s = using(wire, scenario, deadline_s=1.0)
    assert texts(first) == texts(second) == [["T\nq"]]
    assert (stats.shared, took_s) == (1, 0.9)


def test_a_query_that_waits_for_room_is_a_failed_search_at_its_deadline():
    async def scenario(retriever):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(retriever.find(["slow"]))
            waiting = tasks.create_task(after(0.1, retriever.find(["q"])))
        return waiting.result()

    wire = Wire(latency_s=1e9)
    found, took_s = using(wire, scenario, concurrency=1, deadline_s=2.0, timeout_s=100.0)
    assert found == [Failed("no answer within 2 s")]
    assert took_s == pytest.approx(2.1)


def test_a_server_that_is_restarted_costs_a_wait_and_no_search():
    async def scenario(retriever):
        return await retriever.find(["q"])

    wire = Wire(DOWN, DOWN, Reply(503, {"retry-after": "5"}, b""))
    found, took_s = using(wire, scenario)
    assert texts(found) == [["T\nq"]]
    assert 5 < took_s < 10
    assert len(wire.seen) == 4


def test_a_request_that_hangs_is_given_up_at_its_timeout_and_asked_again():
    class HangsOnce(Wire):
        async def send(self, request, *, timeout_s):
            self.latency_s = 1e9 if not self.seen else 0.2
            return await super().send(request, timeout_s=timeout_s)

    async def scenario(retriever):
        return await retriever.find(["q"])

    wire = HangsOnce()
    found, took_s = using(wire, scenario, timeout_s=2.0, deadline_s=30.0)
    assert texts(found) == [["T\nq"]]
    assert wire.seen == [["q"], ["q"]]
    assert 2.2 <= took_s < 3.2


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (DOWN, "no connection"),
        (TransportError(FailureKind.TIMEOUT, "no complete reply in 10 s"), "no complete reply"),
        (Reply(500, {}, b'{"error": "document 7: is not JSON"}'), "status 500: document 7"),
        (Reply(422, {}, b'{"detail": [{"loc": ["topk"]}]}'), r"status 422: \[\{'loc': \['topk'\]"),
        (Reply(404, {}, b"Not Found"), "status 404: .* check retriever.url"),
        (Reply(307, {"location": "/retrieve/"}, b""), "redirects to /retrieve/; set retriever.url"),
        (Reply(200, {}, b"<html>"), "not JSON"),
        (Reply(200, {}, b"\xff"), "not JSON"),
        (Reply(200, {}, b'{"result": [[], []]}'), "answered 2 of 1 queries"),
        (Reply(200, {}, b'{"result": [{}]}'), "not a list of documents"),
        (Reply(200, {}, b'{"result": [[{"text": "x"}]]}'), "without 'contents'"),
        (Reply(204, {}, b""), "not JSON"),
        (Reply(200, {}, b'{"result": %b}' % (b"[" * 10**5 + b"]" * 10**5)), "nested too deeply"),
        (Reply(500, {}, b"[" * 10**5), r"status 500: \[\["),
    ],
)
def test_whatever_the_server_does_a_search_fails_in_words_and_in_time(reply, why):
    async def scenario(retriever):
        return await retriever.find(["q"]), retriever.stats

    wire = Wire(*[reply] * 50)
    ([found], stats), took_s = using(wire, scenario)
    assert isinstance(found, Failed)
    assert re.search(why, found.why)
    assert took_s <= 30
    assert (stats.failed, stats.requests) == (1, len(wire.seen))
    assert len(wire.seen) <= 8


def test_no_more_text_is_remembered_than_the_memory_can_hold(monkeypatch):
    monkeypatch.setattr("zerowait.search.retriever._MOST_CACHED_CHARS", 10)

    async def scenario(retriever):
        for query in ("aaa", "bbb", "aaa", "c" * 15, "bbb"):
            await retriever.find([query])

    wire = Wire()  # a passage has two characters more than its query
    using(wire, scenario)
    assert wire.seen == [["aaa"], ["bbb"], ["c" * 15], ["bbb"]]


@pytest.mark.parametrize("limit", [1, 3, 8])
def test_what_is_too_much_for_one_reply_is_asked_for_in_parts(limit):
    """A reply may hold `limit` queries' passages; the server says so, or the wire gives up."""

    async def scenario(retriever):
        return await retriever.find([f"q{n}" for n in range(8)])

    for too_much in (ReplyTooLongError(), Reply(413, {}, b'{"error": "300 MiB of documents"}')):

        def small_enough(queries, too_much=too_much):
            return found_for(queries) if len(queries) <= limit else too_much

        wire = Wire(*[small_enough] * 50)
        found, took_s = using(wire, scenario)
        assert texts(found) == [[f"T\nq{n}"] for n in range(8)]
        assert (took_s, len(wire.seen)) == pytest.approx((0.2 * len(wire.seen), len(wire.seen)))
        assert len(wire.seen) <= 15


def test_one_query_that_finds_too_much_fails_alone_and_at_once():
    async def scenario(retriever):
        return await retriever.find(["a", "huge", "b"])

    def huge(queries):
        return ReplyTooLongError() if "huge" in queries else found_for(queries)

    wire = Wire(*[huge] * 50)
    [first, found, last], _ = using(wire, scenario, topk=9)
    assert texts([first, last]) == [["T\na"], ["T\nb"]]
    assert found == Failed("the reply is longer than 16 MiB; lower retriever.topk from 9")
    assert wire.seen.count(["huge"]) == 1


def test_replies_that_make_no_sense_are_given_up_sooner_than_a_server_that_is_down():
    async def scenario(retriever):
        return await retriever.find(["q"])

    nonsense, down = Wire(*[Reply(200, {}, b"{}")] * 50), Wire(*[DOWN] * 50)
    using(nonsense, scenario)
    using(down, scenario)
    assert (len(nonsense.seen), len(down.seen)) == (3, 8)


def test_a_bug_in_the_transport_is_a_failed_search_and_is_reported():
    async def scenario(retriever):
        reported = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: reported.append(context)
        )
        found = await retriever.find(["q"])
        await asyncio.sleep(1)
        return found, [context["exception"] for context in reported]

    mistake = RuntimeError("a mistake")
    (found, reported), took_s = using(Wire(mistake), scenario)
    assert found == [Failed("the request ended without an answer")]
    assert reported == [mistake]
    assert took_s < 2


def test_a_query_that_utf8_cannot_carry_harms_no_other():
    async def scenario(retriever):
        return await retriever.find(["a", "half \ud800", "b"])

    wire = Wire()
    found, _ = using(wire, scenario)
    assert wire.seen == [["a", "half ?", "b"]]
    assert texts(found) == [["T\na"], ["T\nhalf ?"], ["T\nb"]]


def test_a_blank_query_finds_nothing_and_is_not_sent():
    async def scenario(retriever):
        return await retriever.find(["", " \n", "q"])

    wire = Wire()
    found, _ = using(wire, scenario)
    assert texts(found) == [[], [], ["T\nq"]]
    assert wire.seen == [["q"]]


def test_a_reply_with_more_than_topk_passages_is_cut_to_topk():
    """Search-R1's servers in front of a search engine: no scores, no ids, as many as they like."""

    def web(queries):
        found = [[{"document": {"contents": f"T\n{n}"}} for n in range(9)] for _ in queries]
        return Reply(200, {}, json.dumps({"result": found}).encode())

    async def scenario(retriever):
        return await retriever.find(["q"])

    [found], _ = using(Wire(web), scenario, topk=2)
    assert found == [Passage("T\n0"), Passage("T\n1")]


def test_the_least_recently_asked_is_forgotten_first():
    async def scenario(retriever):
        for query in "abacab":
            await retriever.find([query])

    wire = Wire()
    using(wire, scenario, remember=2)
    assert wire.seen == [["a"], ["b"], ["c"], ["b"]]
    wire = Wire()
    using(wire, scenario, remember=0)
    assert len(wire.seen) == 6


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.lists(st.sampled_from("abcdefgh"), max_size=3)),
        max_size=24,
    ),
    st.lists(
        st.sampled_from([DOWN, Reply(503, {}, b""), Reply(400, {}, b""), Reply(200, {}, b"{}")]),
        max_size=6,
    ),
    st.integers(1, 3),
    st.integers(1, 4),
)
def test_every_query_gets_its_own_passages_or_a_failure_in_time(asked, faults, concurrency, batch):
    async def one(retriever, at, queries):
        await asyncio.sleep(at / 10)
        began = asyncio.get_running_loop().time()
        found = await retriever.find(queries)
        return found, asyncio.get_running_loop().time() - began

    async def scenario(retriever):
        async with asyncio.TaskGroup() as tasks:
            all_ = [tasks.create_task(one(retriever, at, queries)) for at, queries in asked]
        return [task.result() for task in all_]

    wire = Wire(*faults)
    results, _ = using(wire, scenario, concurrency=concurrency, batch=batch, deadline_s=8.0)
    for (_, queries), (found, took_s) in zip(asked, results, strict=True):
        assert took_s <= 8.0 + 1e-9
        for query, passages in zip(queries, texts(found), strict=True):
            assert isinstance(passages, Failed) or passages == [f"T\n{query}"]
    assert wire.peak <= concurrency
    assert all(len(queries) <= batch for queries in wire.seen)
    assert all(len(set(queries)) == len(queries) for queries in wire.seen)


def test_sixty_four_agents_wait_for_the_network_alone():
    """Four searches each at 200 ms, each agent thinking for a while between them."""

    async def agent(retriever, number):
        waited_s = 0.0
        for turn in range(4):
            await asyncio.sleep((number * 7 + turn * 13) % 64 / 100)
            began = asyncio.get_running_loop().time()
            [found] = await retriever.find([f"{number} {turn}"])
            waited_s += asyncio.get_running_loop().time() - began
            assert texts([found]) == [[f"T\n{number} {turn}"]]
        return waited_s

    async def scenario(retriever):
        async with asyncio.TaskGroup() as tasks:
            agents = [tasks.create_task(agent(retriever, number)) for number in range(64)]
        return [task.result() for task in agents]

    wire = Wire()
    waited, _ = using(wire, scenario)
    assert max(waited) == pytest.approx(4 * 0.2)


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:8000/retrieve", "ftp://host/x", "http://", "http://host:port/x", "http://h:0"],
)
def test_an_address_that_is_none_is_refused_at_once(url):
    with pytest.raises((ValueError, ConfigError), match="url must be like http://127"):
        RetrieverSettings(url=url)
