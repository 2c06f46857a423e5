"""The client of a ``/retrieve`` server: batched, shared, remembered, and never late for ever."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from random import Random
from types import TracebackType
from typing import Final, Self, TypeAlias

import msgspec

from zerowait.client import (
    AiohttpTransport,
    Effort,
    GiveUp,
    Reply,
    Request,
    Transport,
    TransportError,
    decide,
)
from zerowait.errors import ClosedError, DataError
from zerowait.search.passages import Failed, Passage
from zerowait.search.settings import RetrieverSettings
from zerowait.search.wire import passages_in, request_body

_HEADERS: Final = {"Content-Type": "application/json"}
_ATTEMPTS: Final = 8
_THE_REQUESTS_FAULT: Final = frozenset({400, 413, 422})

_Found: TypeAlias = "Sequence[Passage] | Failed"


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
        transport: how requests travel; aiohttp when None.
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
        self._transport = transport or AiohttpTransport()
        self._jitter = jitter or Random()
        self._memory: OrderedDict[str, Sequence[Passage]] = OrderedDict()
        self._waiting: deque[str] = deque()
        self._answers: dict[str, asyncio.Future[_Found]] = {}
        self._requests: set[asyncio.Task[None]] = set()
        self._stats = RetrieverStats()
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
        for task in self._requests:
            task.cancel()
        if self._requests:
            await asyncio.wait(self._requests)
        for query in list(self._answers):
            self._settle(query, Failed("the retriever's client was closed"))
        await self._transport.aclose()

    @property
    def stats(self) -> RetrieverStats:
        """What was asked so far."""
        return self._stats

    async def find(self, queries: Sequence[str]) -> list[_Found]:
        """The passages for each query, or why there are none; within ``deadline_s``.

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

    async def _one(self, query: str) -> _Found:
        self._count(queries=1)
        known = self._memory.get(query)
        if known is not None:
            self._memory.move_to_end(query)
            self._count(remembered=1)
            return known
        answer = self._answers.get(query)
        if answer is None:
            answer = self._answers[query] = asyncio.get_running_loop().create_future()
            self._waiting.append(query)
            # in the loop's next turn, so that those who ask in this one leave together
            asyncio.get_running_loop().call_soon(self._send)
        else:
            self._count(shared=1)
        found = await self._in_time(answer)
        self._count(failed=int(isinstance(found, Failed)))
        return found

    async def _in_time(self, answer: asyncio.Future[_Found]) -> _Found:
        deadline_s = self._settings.deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                return await asyncio.shield(answer)
        except TimeoutError:
            return Failed(f"no answer within {deadline_s:g} s")

    def _send(self) -> None:
        """Start requests for what waits, as far as there is room."""
        while self._waiting and len(self._requests) < self._settings.concurrency:
            if self._closed:
                return
            count = min(len(self._waiting), self._settings.batch)
            queries = [self._waiting.popleft() for _ in range(count)]
            task = asyncio.get_running_loop().create_task(self._ask(queries))
            self._requests.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        if not task.cancelled():
            task.result()  # raises nothing of its own; a mistake in it must show
        self._send()

    async def _ask(self, queries: Sequence[str]) -> None:
        """Ask for `queries` in one request, and in halves if the server refuses the request."""
        found = await self._reply(queries)
        if isinstance(found, _Refused) and len(queries) > 1:
            half = len(queries) // 2
            await self._ask(queries[:half])
            await self._ask(queries[half:])
            return
        if isinstance(found, _Refused | Failed):
            found = [Failed(found.why)] * len(queries)
        for query, passages in zip(queries, found, strict=True):
            self._settle(query, passages)

    async def _reply(self, queries: Sequence[str]) -> Sequence[_Found] | Failed | _Refused:
        clock = asyncio.get_running_loop().time
        ends_s = clock() + self._settings.deadline_s
        request = Request(self._settings.url, _HEADERS, request_body(queries, self._settings.topk))
        attempt, resent = 1, False
        while True:
            reply = await self._attempt(request, ends_s - clock())
            fault = ""
            if isinstance(reply, Reply) and 200 <= reply.status < 300:
                try:
                    return passages_in(reply.body, queries=len(queries))
                except DataError as error:
                    fault = str(error)
            effort = Effort(
                attempt=attempt,
                attempts=_ATTEMPTS,
                remaining_s=ends_s - clock(),
                resent=resent,
                now_s=time.time(),
            )
            decision = decide(reply, effort, jitter=self._jitter)
            if isinstance(decision, GiveUp):
                refused = isinstance(reply, Reply) and reply.status in _THE_REQUESTS_FAULT
                return (_Refused if refused else Failed)(fault or decision.why)
            attempt += decision.counted
            resent = resent or not decision.counted
            await asyncio.sleep(decision.after_s)

    async def _attempt(self, request: Request, left_s: float) -> Reply | TransportError:
        self._count(requests=1)
        timeout_s = max(0.0, min(self._settings.timeout_s, left_s))
        try:
            return await self._transport.send(request, timeout_s=timeout_s)
        except TransportError as error:
            return error.with_traceback(None)

    def _settle(self, query: str, found: _Found) -> None:
        if not isinstance(found, Failed):
            self._remember(query, found)
        answer = self._answers.pop(query, None)
        if answer is not None and not answer.done():
            answer.set_result(found)

    def _remember(self, query: str, found: Sequence[Passage]) -> None:
        self._memory[query] = found
        if len(self._memory) > self._settings.remember:
            self._memory.popitem(last=False)

    def _count(self, **more: int) -> None:
        now = {name: getattr(self._stats, name) + count for name, count in more.items()}
        self._stats = msgspec.structs.replace(self._stats, **now)


class _Refused(msgspec.Struct, frozen=True):
    """The request itself is at fault: another would be refused as well."""

    why: str
