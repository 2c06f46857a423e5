"""Client of a ``/retrieve`` server: batching, single flight, an LRU cache, and a deadline."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from random import Random
from types import TracebackType
from typing import Final, Self

import msgspec

from zerowait.cache import Sent, SingleFlight
from zerowait.client import HttpTransport, Transport
from zerowait.errors import ClosedError
from zerowait.search.passages import Failed, Passage
from zerowait.search.query_sender import QueryResult, QuerySender
from zerowait.search.settings import RetrieverSettings

_MOST_CACHED_CHARS: Final = 64 * 2**20
"""Limit of the LRU cache: passages may be whole books, and each rollout worker has a cache."""


class RetrieverStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of a retriever client.

    Args:
        queries: all queries, repeats included.
        remembered: of these, answered from the LRU cache.
        shared: of these, answered by an equal query in flight (single flight).
        failed: of these, without an answer.
        requests: HTTP requests, retries included.
    """

    queries: int = 0
    remembered: int = 0
    shared: int = 0
    failed: int = 0
    requests: int = 0


class Retriever:
    """Finds passages; opened and closed with ``async with``, on one event loop.

    Queries are batched into requests; equal queries in flight share one answer (single flight), and
    answered queries come from an LRU cache.

    Args:
        settings: URL, deadlines, concurrency, batch size and cache size.
        transport: sends requests; `HttpTransport` when None. Closed with the retriever.
        jitter: random source of the waits before retries.
    """

    def __init__(
        self,
        settings: RetrieverSettings,
        *,
        transport: Transport | None = None,
        jitter: Random | None = None,
    ) -> None:
        self._settings = settings
        self._sender = QuerySender(settings, transport or HttpTransport(), jitter or Random())
        self._single_flight: SingleFlight[QueryResult] = SingleFlight()
        self._cache: OrderedDict[str, Sequence[Passage]] = OrderedDict()
        self._cached_chars = 0
        self._queries = self._remembered = self._shared = self._failed = 0
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel every request; open queries get a failure. Idempotent."""
        self._closed = True
        await self._single_flight.aclose()
        await self._sender.aclose()

    @property
    def stats(self) -> RetrieverStats:
        """The counters so far."""
        return RetrieverStats(
            queries=self._queries,
            remembered=self._remembered,
            shared=self._shared,
            failed=self._failed,
            requests=self._sender.requests,
        )

    async def find(self, queries: Sequence[str]) -> list[QueryResult]:
        """The passages for each query, or why the search failed; within ``deadline_s``.

        A blank query has no passages and is not sent.

        Raises:
            ClosedError: it was closed before.
        """
        if self._closed:
            raise ClosedError("the retriever's client was closed")
        if len(queries) == 1:
            return [await self._find_one(queries[0])]
        async with asyncio.TaskGroup() as tasks:
            found = [tasks.create_task(self._find_one(query)) for query in queries]
        return [task.result() for task in found]

    async def _find_one(self, query: str) -> QueryResult:
        self._queries += 1
        if not query.strip():
            return ()
        known = self._cache.get(query)
        if known is not None:
            self._cache.move_to_end(query)
            self._remembered += 1
            return known
        found = await self._ask(query)
        self._failed += isinstance(found, Failed)
        return found

    async def _ask(self, query: str) -> QueryResult:
        deadline_s = self._settings.deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                found, joined = await self._single_flight.run(query, partial(self._send, query))
        except TimeoutError:
            return Failed(f"no answer within {deadline_s:g} s")
        except ClosedError:
            return Failed("the retriever's client was closed")
        self._shared += joined
        return found

    async def _send(self, query: str, sent: Sent) -> QueryResult:
        found = await self._sender.ask(query, sent)
        if not isinstance(found, Failed):
            self._store(query, found)
        return found

    def _store(self, query: str, found: Sequence[Passage]) -> None:
        self._cache[query] = found
        self._cached_chars += _chars(found)
        while self._cache and (
            len(self._cache) > self._settings.remember or self._cached_chars > _MOST_CACHED_CHARS
        ):
            _, evicted = self._cache.popitem(last=False)
            self._cached_chars -= _chars(evicted)


def _chars(passages: Sequence[Passage]) -> int:
    return sum(len(passage.contents) for passage in passages)
