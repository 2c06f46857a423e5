"""What is searched together, and what one request may do to another."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest

from zerowait.errors import ClosedError, DataError
from zerowait.search import Passage
from zerowait.search.batcher import SearchBatcher


class HeldIndex:
    """Finds each query in a document of its own, and waits in every search until it may go on."""

    def __init__(self):
        self.searched = []
        self.came = threading.Event()
        self.may_go_on = threading.Event()

    def find(self, queries, topk):
        self.searched.append((list(queries), topk))
        self.came.set()
        assert self.may_go_on.wait(60)
        if "broken" in queries:
            raise DataError("document 7: is not JSON")
        return [[Passage(query)] * topk for query in queries]


@asynccontextmanager
async def batches():
    index = HeldIndex()
    opened = SearchBatcher(index)
    try:
        yield opened, index
    finally:
        index.may_go_on.set()
        await opened.aclose()


async def started(opened, index, *requests):
    """A task for each request of (queries, topk), all handed in while a first search is held."""
    first = asyncio.create_task(opened.find(["first"], 1))
    await asyncio.to_thread(index.came.wait, 60)
    tasks = [asyncio.create_task(opened.find(queries, topk)) for queries, topk in requests]
    await asyncio.sleep(0)
    return first, tasks


def contents(found):
    return [[passage.contents for passage in passages] for passages in found]


def test_requests_that_come_during_a_search_are_searched_together_each_query_once():
    async def scenario():
        async with batches() as (opened, index):
            _, tasks = await started(opened, index, (["a", "b"], 1), (["b"], 1), (["b"], 2))
            assert opened.waiting == 4
            index.may_go_on.set()
            return [contents(await task) for task in tasks], index.searched, opened

    found, searched, opened = asyncio.run(scenario())
    assert found == [[["a"], ["b"]], [["b"]], [["b", "b"]]]
    assert searched == [(["first"], 1), (["a", "b"], 1), (["b"], 2)]
    assert (opened.searches, opened.waiting) == (2, 0)


def test_nothing_is_searched_for_a_caller_who_left():
    async def scenario():
        async with batches() as (opened, index):
            _, (left, stayed) = await started(opened, index, (["a"], 1), (["b"], 1))
            left.cancel()
            await asyncio.sleep(0)
            index.may_go_on.set()
            await stayed
            return index.searched

    assert asyncio.run(scenario()) == [(["first"], 1), (["b"], 1)]


def test_a_request_that_cannot_be_answered_fails_alone():
    async def scenario():
        async with batches() as (opened, index):
            _, (good, bad) = await started(opened, index, (["a"], 1), (["broken"], 1))
            index.may_go_on.set()
            with pytest.raises(DataError, match="document 7"):
                await bad
            return contents(await good)

    assert asyncio.run(scenario()) == [["a"]]


def test_closing_lets_a_search_end_and_cancels_who_waits():
    async def scenario():
        async with batches() as (opened, index):
            first, (waiting,) = await started(opened, index, (["a"], 1))
            closing = asyncio.create_task(opened.aclose())
            await asyncio.sleep(0)
            index.may_go_on.set()
            await closing
            with pytest.raises(asyncio.CancelledError):
                await waiting
            return contents(await first), index.searched

    assert asyncio.run(scenario()) == ([["first"]], [(["first"], 1)])


def test_a_search_after_closing_is_an_error_and_does_not_wait_for_ever():
    async def scenario():
        async with batches() as (opened, _):
            await opened.aclose()
            with pytest.raises(ClosedError):
                await opened.find(["late"], 1)

    asyncio.run(scenario())


def test_a_search_larger_than_a_batch_is_still_one_and_the_next_come_after_it():
    async def scenario():
        async with batches() as (opened, index):
            many = [f"q{n}" for n in range(400)]
            _, tasks = await started(opened, index, (many, 1), (["last"], 1))
            index.may_go_on.set()
            await asyncio.wait(tasks)
            return [len(queries) for queries, _ in index.searched]

    assert asyncio.run(scenario()) == [1, 400, 1]
