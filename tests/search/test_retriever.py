"""The retriever's client against a real server over a real index, and against broken ones."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager

import bm25s
import numpy as np
import pytest
from aiohttp import ClientSession, web
from hypothesis import given
from hypothesis import strategies as st

from zerowait.errors import ClosedError, ConfigError, DataError
from zerowait.search import Failed, Passage, Retriever, RetrieverSettings, settings_from
from zerowait.search.bm25 import open_bm25
from zerowait.search.index import build_index, open_index, reciprocal_rank_fusion
from zerowait.search.server import parse_retrieve_request, serving_index
from zerowait.search.wire import passages_in, reply_body
from zerowait.testing import virtually

DOCUMENTS = {
    "1": '"Lima"\nLima is the capital and largest city of Peru.',
    "2": '"Cusco"\nCusco is a city in Peru near the Urubamba valley.',
    "3": '"Oslo"\nOslo is the capital of Norway.',
    "4": '"Mozart"\nWolfgang Amadeus Mozart was a composer of the classical period.',
}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("retriever")
    corpus = folder / "corpus.jsonl"
    corpus.write_text(
        "\n".join(json.dumps({"id": i, "contents": c}) for i, c in DOCUMENTS.items()) + "\n\n"
    )
    build_index(corpus, folder / "index")
    with open_index(folder / "index") as opened:
        yield opened


@asynccontextmanager
async def server(*replies):
    """A server that answers each request with the next of `replies`: a status, body or delay."""
    seen = []

    async def retrieve(request):
        asked = await request.json()
        seen.append(asked["queries"])
        reply = replies[min(len(seen), len(replies)) - 1]
        if callable(reply):
            return await reply(asked)
        if isinstance(reply, int):
            return web.Response(status=reply)
        return web.Response(body=reply)

    app = web.Application()
    app.router.add_post("/retrieve", retrieve)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/retrieve", seen
    finally:
        await runner.cleanup()


async def echo(asked):
    found = [[Passage(f"T\n{query}")] for query in asked["queries"]]
    return web.Response(body=reply_body(found, scores=True))


def patient(url, **options):
    """What should answer has a minute for it, and another for what is asked again."""
    return RetrieverSettings(url=url, timeout_s=60.0, deadline_s=120.0, **options)


def texts(results):
    return [r if isinstance(r, Failed) else [p.contents for p in r] for r in results]


def test_the_best_passages_come_first_and_nothing_that_shares_no_word(index):
    found = index.find(["capital of Peru", "Mozart", "zebra"], topk=3)
    assert [[p.id for p in ps] for ps in found] == [["1", "3", "2"], ["4"], []]
    assert found[0][0].score > found[0][1].score


@pytest.mark.parametrize("queries", [[""], [" \n"], ["Mozart", ""], ["", "Mozart", " "]])
def test_a_blank_query_finds_nothing_and_harms_no_other(index, queries):
    found = index.find(queries, topk=3)
    assert [[p.id for p in ps] for ps in found] == [["4"] if q == "Mozart" else [] for q in queries]


@given(st.lists(st.text("abc de", max_size=12), min_size=1, max_size=4), st.integers(1, 5))
def test_the_best_documents_and_their_scores_are_those_of_the_library(words, queries, count):
    """`words` is an index over short texts of few letters, so that many scores are equal."""
    ours, library = words
    expected = []
    for tokens in bm25s.tokenize(queries, return_ids=False, show_progress=False):
        scores = library.get_scores(tokens) if tokens else np.zeros(1)
        ranked = sorted((-score, row) for row, score in enumerate(scores.tolist()) if score > 0)
        expected.append([(row, -score) for score, row in ranked[:count]])
    assert ours.best(queries, count) == expected


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    texts = [f"{a}{b} {c}{a} {b}{b}" for a in "abcde" for b in "abc" for c in "ad"]
    lines = [json.dumps({"id": str(n), "contents": text}) for n, text in enumerate(texts)]
    (folder / "c.jsonl").write_text("\n".join(lines))
    files = folder / build_index(folder / "c.jsonl", folder).files
    return open_bm25(files), bm25s.BM25.load(str(files / "bm25"))


async def ask(url, **body):
    async with ClientSession() as session, session.post(url, json=body) as reply:
        return reply.status, await reply.json()


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("scores", [True, False, None])
def test_a_search_r1_client_is_answered_in_both_forms(index, count, scores):
    async def scenario():
        async with serving_index(index, port=0) as url:
            body = {"queries": ["capital of Peru"] * count, "topk": 2}
            if scores is not None:
                body["return_scores"] = scores
            return await ask(url, **body)

    status, reply = asyncio.run(scenario())
    assert status == 200
    assert len(reply["result"]) == count
    for found in reply["result"]:
        documents = [item["document"] if scores else item for item in found]
        assert documents[0] == {"id": "1", "contents": DOCUMENTS["1"]}
        assert len(documents) == 2
        assert all(isinstance(item["score"], float) for item in found) if scores else True


@pytest.mark.parametrize(
    ("body", "error_text"),
    [
        (b"", "not a retrieve request"),
        (b"[]", "not a retrieve request"),
        (b'{"queries": "who"}', "queries"),
        (b'{"queries": [1]}', "queries"),
        (
            json.dumps({"queries": ["x", "y" * 40_000]}).encode(),
            r"queries\[1\] has 40000 characters",
        ),
        (b'{"queries": ["x"], "topk": 0}', "topk must be from 1"),
        (b'{"queries": ["x"], "top_k": 1}', "top_k"),
        (b"\xff", "not a retrieve request"),
        (json.dumps({"queries": ["x"] * 20_000}).encode(), "20000 queries"),
    ],
)
def test_a_bad_request_is_refused_with_what_is_wrong(body, error_text):
    with pytest.raises(ValueError, match=error_text):
        parse_retrieve_request(body)


def test_the_server_says_how_it_is_and_refuses_with_400(index):
    async def scenario():
        async with serving_index(index, port=0) as url, ClientSession() as session:
            bad = await session.post(url, data=b"nonsense")
            health = await session.get(url.replace("/retrieve", "/healthz"))
            metrics = await session.get(url.replace("/retrieve", "/metrics"))
            return bad.status, await bad.json(), await health.json(), await metrics.text()

    status, error, health, metrics = asyncio.run(scenario())
    assert status == 400
    assert "not a retrieve request" in error["error"]
    assert health == {"status": "ok", "kind": "bm25", "documents": 4}
    assert "zerowait_retriever_refused_total 1" in metrics


def test_a_port_that_is_taken_is_a_configuration_error(index):
    async def scenario():
        async with serving_index(index, port=0) as url:
            port = int(url.split(":")[2].split("/")[0])
            async with serving_index(index, port=port):
                pass

    with pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1"):
        asyncio.run(scenario())


def test_queries_at_the_same_time_leave_together_and_are_asked_once(index):
    async def scenario():
        async with server(echo) as (url, seen), Retriever(patient(url)) as retriever:
            async with asyncio.TaskGroup() as tasks:
                asked = [tasks.create_task(retriever.find([f"q{n % 4}"])) for n in range(64)]
            again = await retriever.find(["q1", "q9"])
            return [t.result() for t in asked], again, seen, retriever.stats

    found, again, seen, stats = asyncio.run(scenario())
    assert seen == [["q0", "q1", "q2", "q3"], ["q9"]]
    assert texts(found[5]) == [["T\nq1"]]
    assert texts(again) == [["T\nq1"], ["T\nq9"]]
    assert (stats.queries, stats.shared, stats.remembered, stats.requests) == (66, 60, 1, 2)


def test_our_client_and_our_server_understand_each_other(index):
    async def scenario():
        async with (
            serving_index(index, port=0) as url,
            Retriever(patient(url, topk=1)) as retriever,
        ):
            return await retriever.find(["capital of Norway", "nothing like it"])

    assert texts(asyncio.run(scenario())) == [[DOCUMENTS["3"]], []]


@pytest.mark.parametrize(
    "fault", [500, 503, 429, b"{", b"[]", b'{"result": []}', b'{"result": [[{"x": 1}]]}']
)
def test_a_fault_that_passes_is_retried(fault):
    async def scenario():
        async with (
            server(fault, echo) as (url, seen),
            Retriever(patient(url)) as retriever,
        ):
            return await retriever.find(["q"]), seen

    found, seen = asyncio.run(scenario())
    assert texts(found) == [["T\nq"]]
    assert len(seen) == 2


def test_one_query_that_the_server_refuses_takes_no_other_with_it():
    async def picky(asked):
        if "bad" in asked["queries"]:
            return web.Response(status=400, text="no")
        return await echo(asked)

    async def scenario():
        async with server(picky) as (url, seen), Retriever(patient(url)) as retriever:
            return await retriever.find(["a", "bad", "b", "c"]), seen

    found, seen = asyncio.run(scenario())
    assert texts(found)[0::2] == [["T\na"], ["T\nb"]]
    assert found[1].why.startswith("status 400")
    assert len(seen) <= 5


def test_a_server_that_hangs_is_a_failed_search_within_the_deadline():
    async def hang(asked):
        await asyncio.Event().wait()

    async def scenario():
        async with server(hang) as (url, _):
            settings = RetrieverSettings(url=url, timeout_s=0.1, deadline_s=0.3)
            async with Retriever(settings) as retriever:
                async with asyncio.timeout(60):
                    return await retriever.find(["q"]), retriever.stats

    [found], stats = asyncio.run(scenario())
    assert isinstance(found, Failed)
    assert stats.failed == 1


def test_an_address_without_a_server_is_a_failed_search():
    async def scenario(port):
        settings = RetrieverSettings(url=f"http://127.0.0.1:{port}/retrieve")
        async with Retriever(settings) as retriever:
            return await retriever.find(["q"])

    with socket.socket() as ours:  # bound, so that no other process takes it, and not listening
        ours.bind(("127.0.0.1", 0))
        [found], _ = virtually(scenario(ours.getsockname()[1]))
    assert "no connection" in found.why


def test_a_failure_is_not_remembered():
    async def scenario():
        async with (
            server(404, echo) as (url, _),
            Retriever(patient(url)) as retriever,
        ):
            return await retriever.find(["q"]), await retriever.find(["q"])

    first, second = asyncio.run(scenario())
    assert isinstance(first[0], Failed)
    assert texts(second) == [["T\nq"]]


def test_closing_ends_every_wait_and_refuses_what_comes_after():
    async def scenario():
        came = asyncio.Event()

        async def hang(asked):
            came.set()
            await asyncio.Event().wait()

        async with server(hang) as (url, _):
            retriever = Retriever(patient(url))
            waiting = asyncio.create_task(retriever.find(["q"]))
            await came.wait()
            await retriever.aclose()
            found = await waiting
            with pytest.raises(ClosedError):
                await retriever.find(["q"])
            return found, len(asyncio.all_tasks())

    found, tasks = asyncio.run(scenario())
    assert found == [Failed("the retriever's client was closed")]
    assert tasks <= 3  # this one, and what the server of the test keeps


def test_a_cancelled_caller_leaves_the_others_their_answer():
    async def scenario():
        async with server(echo) as (url, _), Retriever(patient(url)) as retriever:
            first = asyncio.create_task(retriever.find(["q"]))
            second = asyncio.create_task(retriever.find(["q"]))
            await asyncio.sleep(0)
            first.cancel()
            return await second

    assert texts(asyncio.run(scenario())) == [["T\nq"]]


@given(
    st.lists(
        st.lists(
            st.builds(Passage, st.text('aé\n"\\', min_size=1), st.just("7"), st.floats(0, 1)),
            max_size=2,
        ),
        max_size=3,
    ),
    st.booleans(),
)
def test_what_the_server_writes_the_client_reads(results, scores):
    found = passages_in(reply_body(results, scores=scores), queries=len(results))
    assert [[(p.contents, p.id) for p in ps] for ps in found] == [
        [(p.contents, p.id) for p in ps] for ps in results
    ]
    assert all(p.score is not None for ps in found for p in ps) if scores else True


def test_a_score_that_no_float_can_hold_is_no_score():
    found = b'{"result": [[{"document": {"contents": "T"}, "score": 1%b}]]}' % (b"0" * 400)
    assert [[p.score for p in ps] for ps in passages_in(found, queries=1)] == [[None]]


@given(st.lists(st.permutations(range(6)), min_size=1, max_size=3))
def test_fusing_keeps_what_all_rankings_agree_on(rankings):
    ranked = [[(row, 0.0) for row in ranking] for ranking in rankings]
    order = [row for row, _ in reciprocal_rank_fusion(ranked)]
    assert sorted(order) == list(range(6))
    for a in range(6):
        for b in range(6):
            if all(r.index(a) < r.index(b) for r in rankings):
                assert order.index(a) < order.index(b)


@pytest.mark.parametrize(
    ("text", "error_text"),
    [
        ("", "empty"),
        ("\n\n", "has no documents"),
        ('{"contents": "a the ?"}', "no document has a word"),
        ("{", "document 1: is not JSON"),
        ("[" * 100_000, "document 1: is not JSON"),
        ('{"id": 1, "contents": "a"}\n{"id": 2, "text": "b"}', "document 2: has no text under"),
    ],
)
def test_a_corpus_that_is_none_is_refused_by_line(tmp_path, text, error_text):
    (tmp_path / "c.jsonl").write_text(text)
    with pytest.raises(DataError, match=error_text):
        build_index(tmp_path / "c.jsonl", tmp_path / "index")


def test_an_index_whose_corpus_changed_is_refused(tmp_path):
    corpus = tmp_path / "c.jsonl"
    corpus.write_text('{"id": 1, "contents": "Lima Peru"}\n')
    build_index(corpus, tmp_path / "index")
    corpus.write_text('{"id": 1, "contents": "Lima Peru Oslo"}\n')
    with pytest.raises(DataError, match="moved or changed"):
        open_index(tmp_path / "index")
    with pytest.raises(DataError, match="holds no index"):
        open_index(tmp_path)


def test_settings_name_the_nearest_key():
    with pytest.raises(ConfigError, match="search has no key 'max_turn'; did you mean 'max_turns'"):
        settings_from({"max_turn": 3})
    with pytest.raises(ConfigError, match=r"search\.retriever has no key 'top_k'"):
        settings_from({"retriever": {"top_k": 3}})
    with pytest.raises(ConfigError, match="max_turns must be at least 0"):
        settings_from({"max_turns": -1})
