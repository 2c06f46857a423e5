"""The retriever's server at its limits, and the forms that Search-R1 speaks, both ways."""

import asyncio
import json
import re
import threading

import pytest
from aiohttp import ClientSession, web

from zerowait.errors import ConfigError, DataError
from zerowait.search import Passage, Retriever, RetrieverSettings
from zerowait.search.index import build_index, open_index
from zerowait.search.server import serving_index


class Index:
    """Finds each query in documents of its own; waits in a search until it may go on."""

    kind = "bm25"

    def __init__(self, *, held=False, broken=False):
        self.came, self.may_go_on = threading.Event(), threading.Event()
        self._broken = broken
        if not held:
            self.may_go_on.set()

    def __len__(self):
        return 7

    def find(self, queries, topk):
        self.came.set()
        assert self.may_go_on.wait(60)
        if self._broken:
            raise DataError("corpus.jsonl, document 7: is not JSON")
        return [[Passage(f"T\n{q}", str(n), 1.0 / (n + 1)) for n in range(topk)] for q in queries]


def asked(index, scenario, **options):
    """The result of ``scenario(session, url)`` while `index` is served."""

    async def main():
        async with (
            serving_index(index, port=0, **options) as url,
            ClientSession() as session,
        ):
            return await scenario(session, url)

    return asyncio.run(main())


async def answer(reply):
    return reply.status, await reply.json()


@pytest.mark.parametrize("queries", [[], ["a"], ["a", "b"], ["a", "b", "c"], ["a", "a"], ["", "a"]])
def test_a_search_r1_rollout_reads_what_it_asked_for(queries):
    """It posts the queries of all its trajectories, none included, and reads it like this."""

    async def scenario(session, url):
        body = {"queries": queries, "topk": 2, "return_scores": True}
        return await (await session.post(url, json=body)).json()

    found = asked(Index(), scenario)["result"]
    contents = [[item["document"]["contents"] for item in items] for items in found]
    assert contents == [[f"T\n{q}"] * 2 for q in queries]


@pytest.mark.parametrize("topk", [{}, {"topk": None}])
def test_without_a_number_of_passages_the_servers_own_holds(topk):
    async def scenario(session, url):
        return await (await session.post(url, json={"queries": ["a"], **topk})).json()

    assert len(asked(Index(), scenario, topk=4)["result"][0]) == 4


def words_form(query):
    """Search-R1's server over BM25: the parts of a document beside the whole, and no id."""
    whole = {"title": "T", "text": query, "contents": f"T\n{query}"}
    return {"document": whole, "score": 11.5}


def dense_form(query):
    return {"document": {"id": 3, "contents": f"T\n{query}"}, "score": 0.83}


def web_form(query):
    return {"document": {"contents": f"T\n{query}"}}


@pytest.mark.parametrize("form", [words_form, dense_form, web_form])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_our_client_reads_every_server_of_search_r1(form, count):
    async def retrieve(request):
        body = await request.json()
        assert body.keys() == {"queries", "topk", "return_scores"}
        return web.json_response({"result": [[form(q)] for q in body["queries"]]})

    async def main():
        app = web.Application()
        app.router.add_post("/retrieve", retrieve)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/retrieve"
        try:
            async with Retriever(
                RetrieverSettings(url=url, timeout_s=60.0, deadline_s=60.0)
            ) as retriever:
                return await retriever.find([f"q{n}" for n in range(count)])
        finally:
            await runner.cleanup()

    found = asyncio.run(main())
    assert [[p.contents for p in ps] for ps in found] == [[f"T\nq{n}"] for n in range(count)]


def test_a_request_that_is_under_way_is_answered_before_the_server_stops():
    index = Index(held=True)

    async def main():
        async with ClientSession() as session:
            async with serving_index(index, port=0, drain_s=60.0) as url:
                asking = asyncio.create_task(session.post(url, json={"queries": ["a"]}))
                await asyncio.to_thread(index.came.wait, 60)
                asyncio.get_running_loop().call_soon(index.may_go_on.set)
            reply = await asking
            return reply.status

    assert asyncio.run(main()) == 200


def test_what_is_still_under_way_when_the_patience_ends_is_given_up():
    index = Index(held=True)

    async def main():
        async with ClientSession() as session:
            async with serving_index(index, port=0, drain_s=0.05) as url:
                asking = asyncio.create_task(session.post(url, json={"queries": ["a"]}))
                await asyncio.to_thread(index.came.wait, 60)
                asking.add_done_callback(lambda _: index.may_go_on.set())
            await asyncio.wait([asking])
            return asking.exception()

    assert isinstance(asyncio.run(main()), Exception)


def test_every_complaint_is_json_and_says_what_is_wrong(monkeypatch):
    monkeypatch.setattr("zerowait.search.server._LARGEST_BODY_BYTES", 1000)

    async def scenario(session, url):
        return [
            await answer(await session.get(url)),
            await answer(await session.post(url + "r")),
            await answer(await session.post(url, data=b"x" * 2000)),
            await answer(await session.post(url, json={"queries": ["a"], "topk": 0})),
            await (await session.get(url.replace("retrieve", "metrics"))).text(),
        ]

    *complaints, metrics = asked(Index(), scenario)
    assert [status for status, _ in complaints] == [405, 404, 413, 400]
    assert all(reply["error"] for _, reply in complaints)
    assert complaints[3][1] == {"error": "topk must be from 1 to 1000, not 0"}
    assert "\nzerowait_retriever_refused_total 3\n" in metrics


def test_a_server_with_too_much_to_do_asks_to_come_back_later(monkeypatch):
    monkeypatch.setattr("zerowait.search.server._MOST_WAITING", 0)

    async def scenario(session, url):
        reply = await session.post(url, json={"queries": ["a"]})
        return *await answer(reply), reply.headers["Retry-After"]

    status, reply, after = asked(Index(), scenario)
    assert (status, after) == (503, "1")
    assert "try again later" in reply["error"]


def test_a_corpus_that_broke_is_a_500_that_names_the_document():
    async def scenario(session, url):
        broken = await answer(await session.post(url, json={"queries": ["a"]}))
        return broken, await (await session.get(url.replace("retrieve", "metrics"))).text()

    broken, metrics = asked(Index(broken=True), scenario)
    assert broken == (500, {"error": "corpus.jsonl, document 7: is not JSON"})
    assert "zerowait_retriever_failed_total 1" in metrics


def test_more_text_than_is_good_is_a_413_before_it_is_read_and_harms_no_other(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("zerowait.search.index._LARGEST_FIND_BYTES", 5000)
    texts = [f"huge{n} common " + "x" * 1000 for n in range(9)] + ["small common"]
    lines = [json.dumps({"id": str(n), "contents": text}) for n, text in enumerate(texts)]
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    build_index(tmp_path / "c.jsonl", tmp_path / "index")

    async def scenario(session, url):
        async with asyncio.TaskGroup() as tasks:
            bodies = [
                {"queries": [q], "topk": k} for q, k in (("common", 9), ("small", 9), ("huge1", 1))
            ]
            replies = [tasks.create_task(session.post(url, json=body)) for body in bodies]
        return [await answer(task.result()) for task in replies]

    with open_index(tmp_path / "index") as index:
        (status, reply), small, huge = asked(index, scenario)
    assert status == 413
    assert re.match("1 queries find . MiB of documents, more than .: ask for fewer", reply["error"])
    assert [len(reply["result"][0]) for _, reply in (small, huge)] == [1, 1]


def test_our_client_reads_in_parts_what_the_transport_would_not_read_whole(tmp_path):
    """Sixteen documents of 3 MiB each are asked for at once, over a real connection."""
    texts = [f"word{n} " + "x" * (3 * 2**20) for n in range(16)]
    lines = [json.dumps({"id": str(n), "contents": text}) for n, text in enumerate(texts)]
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    build_index(tmp_path / "c.jsonl", tmp_path / "index")

    async def main(index):
        async with serving_index(index, port=0) as url:
            patient = RetrieverSettings(url=url, topk=1, timeout_s=60.0, deadline_s=110.0)
            async with Retriever(patient) as retriever:
                return await retriever.find([f"word{n}" for n in range(16)])

    with open_index(tmp_path / "index") as index:
        found = asyncio.run(main(index))
    assert [[p.contents for p in passages] for passages in found] == [[text] for text in texts]


def test_an_impossible_default_is_refused_before_it_listens():
    async def scenario(session, url):
        pass

    with pytest.raises(ConfigError, match="topk must be from 1 to 1000, not 0"):
        asked(Index(), scenario, topk=0)


def test_what_the_server_writes_is_json_for_any_text():
    strange = 'a"\\\n\u2028\U0001f600'

    async def scenario(session, url):
        body = {"queries": [strange], "topk": 1}
        return json.loads(await (await session.post(url, json=body)).read())

    assert asked(Index(), scenario)["result"][0][0]["contents"] == f"T\n{strange}"
