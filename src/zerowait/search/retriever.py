"""The client of a ``/retrieve`` server: batched, shared, remembered, and never late for ever."""

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
from zerowait.search.posts import PostedSearch, Posts
from zerowait.search.settings import RetrieverSettings

_MOST_REMEMBERED_CHARS: Final = 64 * 2**20
"""What is remembered may be whole books; each rollout worker of a job has a memory of its own."""


class RetrieverStats(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked so far.

    Args:
        queries: asked for, repeats included.
        remembered: of those, answered from memory.
        shared: of those, answered by a query that was on its way already.
        failed: of those, not answered.
        requests: sent, resends included.
    """

    queries: int = 0
    remembered: int = 0
    shared: int = 0
    failed: int = 0
    requests: int = 0


class Retriever:
    """Finds passages; opened and closed with ``async with``, on one event loop.

    Queries that come while requests are under way gather, and leave together in the next one.
    A query that is on its way is not sent again, and one that was answered comes from memory.

    Args:
        settings: where, and how patiently.
        transport: how requests travel; `HttpTransport` when None. Closed with this.
        jitter: the source of randomness for waits.
    """

    def __init__(
        self,
        settings: RetrieverSettings,
        *,
        transport: Transport | None = None,
        jitter: Random | None = None,
    ) -> None:
        self._settings = settings
        self._posts = Posts(settings, transport or HttpTransport(), jitter or Random())
        self._flights: SingleFlight[PostedSearch] = SingleFlight()
        self._memory: OrderedDict[str, Sequence[Passage]] = OrderedDict()
        self._remembered_chars = 0
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
        """End every request; who waits gets a failure. Idempotent."""
        self._closed = True
        await self._flights.aclose()
        await self._posts.aclose()

    @property
    def stats(self) -> RetrieverStats:
        """What was asked so far."""
        return RetrieverStats(
            queries=self._queries,
            remembered=self._remembered,
            shared=self._shared,
            failed=self._failed,
            requests=self._posts.requests,
        )

    async def find(self, queries: Sequence[str]) -> list[PostedSearch]:
        """The passages for each query, or why there are none; within ``deadline_s``.

        For a blank query there are none, and nobody is asked.

        Raises:
            ClosedError: it was closed before.
        """
        if self._closed:
            raise ClosedError("the retriever's client was closed")
        if len(queries) == 1:
            return [await self._one(queries[0])]
        async with asyncio.TaskGroup() as tasks:
            found = [tasks.create_task(self._one(query)) for query in queries]
        return [task.result() for task in found]

    async def _one(self, query: str) -> PostedSearch:
        self._queries += 1
        if not query.strip():
            return ()
        known = self._memory.get(query)
        if known is not None:
            self._memory.move_to_end(query)
            self._remembered += 1
            return known
        found = await self._asked(query)
        self._failed += isinstance(found, Failed)
        return found

    async def _asked(self, query: str) -> PostedSearch:
        deadline_s = self._settings.deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                found, joined = await self._flights.run(query, partial(self._flight, query))
        except TimeoutError:
            return Failed(f"no answer within {deadline_s:g} s")
        except ClosedError:
            return Failed("the retriever's client was closed")
        self._shared += joined
        return found

    async def _flight(self, query: str, sent: Sent) -> PostedSearch:
        found = await self._posts.ask(query, sent)
        if not isinstance(found, Failed):
            self._remember(query, found)
        return found

    def _remember(self, query: str, found: Sequence[Passage]) -> None:
        self._memory[query] = found
        self._remembered_chars += _chars(found)
        while self._memory and (
            len(self._memory) > self._settings.remember
            or self._remembered_chars > _MOST_REMEMBERED_CHARS
        ):
            _, forgotten = self._memory.popitem(last=False)
            self._remembered_chars -= _chars(forgotten)


def _chars(passages: Sequence[Passage]) -> int:
    return sum(len(passage.contents) for passage in passages)
