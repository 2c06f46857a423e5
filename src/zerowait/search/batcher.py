"""Batching of searches: requests that arrive during one search share the next, in one thread.

An encoder embeds 32 queries in little more time than one, a thread is woken once for all of them,
and the event loop stays free.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

import msgspec

from zerowait.errors import ClosedError
from zerowait.search.index import Kind
from zerowait.search.passages import Passage

_MAX_BATCH_QUERIES: Final = 256

Results = Sequence[Sequence[Passage]]


class SearchIndex(Protocol):
    """An index as the batcher uses it."""

    @property
    def kind(self) -> Kind:
        """How it ranks: ``bm25``, ``dense`` or ``hybrid``."""

    def __len__(self) -> int:
        """The number of documents."""

    def find(self, queries: Sequence[str], topk: int, /) -> Sequence[Sequence[Passage]]:
        """For each query at most `topk` passages, best first."""


class PendingSearch(msgspec.Struct, frozen=True, eq=False):
    """A request in the queue.

    Args:
        queries: to search for.
        topk: passages for each query.
        answer: resolved with the passages, or with the error.
    """

    queries: Sequence[str]
    topk: int
    answer: asyncio.Future[Results]


class SearchBatcher:
    """Searches an index for concurrent requests, in batches; belongs to one event loop.

    Requests that arrive during a search form the next batch.

    Args:
        index: searched from one thread only, one batch at a time.
    """

    def __init__(self, index: SearchIndex) -> None:
        self._index = index
        self._thread = ThreadPoolExecutor(1, "retriever")
        self._waiting: deque[PendingSearch] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._closed = False
        self.busy_s = 0.0
        self.searches = 0
        self.waiting = 0

    async def find(self, queries: Sequence[str], topk: int) -> Results:
        """The passages for each query; a request that is cancelled in the queue is not searched.

        Args:
            queries: to search for.
            topk: passages for each query.

        Raises:
            DataError: the indexed corpus could not be read, or too much text was found.
            ClosedError: it was closed before.
        """
        if self._closed:
            raise ClosedError("the index was closed")
        answer: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        self._waiting.append(PendingSearch(queries, topk, answer))
        self.waiting += len(queries)
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._run())
        return await answer

    async def aclose(self) -> None:
        """Stop after the search that runs; requests in the queue are cancelled. Idempotent."""
        self._closed = True
        for search in self._waiting:
            search.answer.cancel()
        if self._worker is not None:
            await asyncio.wait([self._worker])
        self._thread.shutdown(wait=True)

    async def _run(self) -> None:
        try:
            while batch := self._next_batch():
                loop = asyncio.get_running_loop()
                for search, found in await loop.run_in_executor(
                    self._thread, self._search_batch, batch
                ):
                    _resolve(search.answer, found)
        finally:
            self._worker = None

    def _next_batch(self) -> list[PendingSearch]:
        """The requests of the next batch, without those that were cancelled in the queue."""
        batch: list[PendingSearch] = []
        count = 0
        while self._waiting and count < _MAX_BATCH_QUERIES:
            search = self._waiting.popleft()
            self.waiting -= len(search.queries)
            if not search.answer.done():
                batch.append(search)
                count += len(search.queries)
        return batch

    def _search_batch(
        self, batch: Sequence[PendingSearch]
    ) -> list[tuple[PendingSearch, Results | Exception]]:
        """The results or the error of each request; runs in the thread."""
        began_s = time.perf_counter()
        found = self._search_or_split(batch)
        self.searches += 1
        self.busy_s += time.perf_counter() - began_s
        return found

    def _search_or_split(
        self, batch: Sequence[PendingSearch]
    ) -> list[tuple[PendingSearch, Results | Exception]]:
        try:
            return list(zip(batch, self._search_distinct(batch), strict=True))
        except Exception as error:  # noqa: BLE001 - raised where the request awaits its answer
            if len(batch) == 1:
                return [(batch[0], error)]
            # Search them one by one: a request that fails must not fail the others
            return [pair for search in batch for pair in self._search_or_split([search])]

    def _search_distinct(self, batch: Sequence[PendingSearch]) -> Iterable[Results]:
        """The results of each request; each distinct (topk, query) is searched once."""
        found: dict[tuple[int, str], Sequence[Passage]] = {}
        for topk in dict.fromkeys(search.topk for search in batch):
            of_this_size = (search.queries for search in batch if search.topk == topk)
            distinct = list(dict.fromkeys(query for queries in of_this_size for query in queries))
            passages = self._index.find(distinct, topk)
            found |= {(topk, q): p for q, p in zip(distinct, passages, strict=True)}
        return [[found[search.topk, query] for query in search.queries] for search in batch]


def _resolve(answer: asyncio.Future[Results], found: Results | Exception) -> None:
    if answer.done():
        return
    if isinstance(found, Exception):
        answer.set_exception(found)
    else:
        answer.set_result(found)
