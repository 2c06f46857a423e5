"""Requests that arrive together are searched together, in one thread, so that the loop stays free.

An encoder embeds 32 queries in little more time than one, and a thread is woken once for all.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

import msgspec

from zerowait.search.index import Kind
from zerowait.search.passages import Passage

_AT_ONCE: Final = 256

Found = Sequence[Sequence[Passage]]


class Searched(Protocol):
    """What is searched: an index."""

    @property
    def kind(self) -> Kind:
        """How it ranks."""

    def __len__(self) -> int:
        """How many documents there are."""

    def find(self, queries: Sequence[str], topk: int, /) -> Sequence[Sequence[Passage]]:
        """For each query at most `topk` passages, best first."""


class Wanted(msgspec.Struct, frozen=True, eq=False):
    """A request that waits: queries, how many passages for each, and who waits."""

    queries: Sequence[str]
    topk: int
    answer: asyncio.Future[Found]


class Batches:
    """Searches an index for many requests; belongs to one event loop.

    Whatever came while a search was under way is the next one.

    Args:
        index: what is searched; only from here, and one search at a time.
    """

    def __init__(self, index: Searched) -> None:
        self._index = index
        self._thread = ThreadPoolExecutor(1, "retriever")
        self._waiting: deque[Wanted] = deque()
        self._worker: asyncio.Task[None] | None = None
        self.busy_s = 0.0
        self.searches = 0
        self.waiting = 0

    async def find(self, queries: Sequence[str], topk: int) -> Found:
        """The passages for each query; whoever is cancelled while waiting is not searched for.

        Raises:
            DataError: the corpus could not be read where it was indexed, or too much was found.
        """
        answer: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self._waiting.append(Wanted(queries, topk, answer))
        self.waiting += len(queries)
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())
        return await answer

    async def aclose(self) -> None:
        """Stop; who still waits is cancelled. Idempotent."""
        for wanted in self._waiting:
            wanted.answer.cancel()
        if self._worker is not None:
            await asyncio.wait([self._worker])
        self._thread.shutdown(wait=True)

    async def _work(self) -> None:
        try:
            while batch := self._next():
                loop = asyncio.get_running_loop()
                for wanted, found in await loop.run_in_executor(self._thread, self._all, batch):
                    _settle(wanted.answer, found)
        finally:
            self._worker = None

    def _next(self) -> list[Wanted]:
        """The requests of the next search; those whose caller is gone are left out."""
        batch: list[Wanted] = []
        count = 0
        while self._waiting and count < _AT_ONCE:
            wanted = self._waiting.popleft()
            self.waiting -= len(wanted.queries)
            if not wanted.answer.done():
                batch.append(wanted)
                count += len(wanted.queries)
        return batch

    def _all(self, batch: Sequence[Wanted]) -> list[tuple[Wanted, Found | Exception]]:
        """Runs in the thread: what was found for each request, or what went wrong with it."""
        began_s = time.perf_counter()
        found = self._found(batch)
        self.searches += 1
        self.busy_s += time.perf_counter() - began_s
        return found

    def _found(self, batch: Sequence[Wanted]) -> list[tuple[Wanted, Found | Exception]]:
        try:
            return list(zip(batch, self._together(batch), strict=True))
        except Exception as error:  # noqa: BLE001 - whoever waits raises it
            if len(batch) == 1:
                return [(batch[0], error)]
            # one request that cannot be answered must not fail the others
            return [pair for wanted in batch for pair in self._found([wanted])]

    def _together(self, batch: Sequence[Wanted]) -> Iterable[Found]:
        """Each different query is looked up once for each number of passages."""
        found: dict[tuple[int, str], Sequence[Passage]] = {}
        for topk in dict.fromkeys(wanted.topk for wanted in batch):
            mine = (wanted.queries for wanted in batch if wanted.topk == topk)
            distinct = list(dict.fromkeys(query for queries in mine for query in queries))
            passages = self._index.find(distinct, topk)
            found |= {(topk, q): p for q, p in zip(distinct, passages, strict=True)}
        return [[found[wanted.topk, query] for query in wanted.queries] for wanted in batch]


def _settle(answer: asyncio.Future[Found], found: Found | Exception) -> None:
    if answer.done():
        return
    if isinstance(found, Exception):
        answer.set_exception(found)
    else:
        answer.set_result(found)
