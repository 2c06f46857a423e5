"""Queries become requests: what waits leaves together, and a fault is asked again in time."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeAlias

import msgspec

from zerowait.client import (
    Effort,
    GiveUp,
    Reply,
    ReplyTooLongError,
    Request,
    Transport,
    TransportError,
    decide,
)
from zerowait.errors import DataError
from zerowait.search.passages import Failed, Passage
from zerowait.search.settings import RetrieverSettings
from zerowait.search.wire import passages_in, reply_complaint, request_body

PostedSearch: TypeAlias = "Sequence[Passage] | Failed"

_HEADERS: Final = {"Content-Type": "application/json"}
_ATTEMPTS: Final = 8
_ATTEMPTS_AT_NONSENSE: Final = 3
_THE_REQUESTS_FAULT: Final = frozenset({400, 413, 422})
_CLOSED: Final = Failed("the retriever's client was closed")


class _Query(msgspec.Struct, frozen=True, eq=False):
    """A query that is to be asked before the loop's clock says `ends_s`."""

    text: str
    ends_s: float
    sent: Callable[[], None]
    answer: asyncio.Future[PostedSearch]


class Posts:
    """Sends queries to one ``/retrieve``, several in a request; belongs to one event loop.

    Queries that come while as many requests are under way as there may be gather, and leave
    together in the next one.

    Args:
        settings: where, and how patiently.
        transport: how requests travel; closed with this.
        jitter: the source of randomness for waits.
    """

    def __init__(self, settings: RetrieverSettings, transport: Transport, jitter: Random) -> None:
        self._settings = settings
        self._transport = transport
        self._jitter = jitter
        self._waiting: deque[_Query] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._closed = False
        self.requests = 0

    async def ask(self, text: str, sent: Callable[[], None]) -> PostedSearch:
        """The passages for `text`, or why there are none; within ``deadline_s``.

        Args:
            text: the query. One whose caller is cancelled before it left is not asked.
            sent: called when it leaves.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[PostedSearch] = loop.create_future()
        ends_s = loop.time() + self._settings.deadline_s
        self._waiting.append(_Query(text, ends_s, sent, answer))
        # in the loop's next turn, so that those who ask in this one leave together
        loop.call_soon(self._send)
        return await answer

    async def aclose(self) -> None:
        """End every request; who waits gets a failure. Idempotent."""
        self._closed = True
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.wait(list(self._under_way))
        _settle(self._waiting, [_CLOSED] * len(self._waiting))
        await self._transport.aclose()

    def _send(self) -> None:
        """Start requests for what waits, as far as there is room."""
        while not self._closed and len(self._under_way) < self._settings.concurrency:
            queries = self._next()
            if not queries:
                return
            task = asyncio.get_running_loop().create_task(self._serve(queries))
            self._under_way.add(task)
            task.add_done_callback(self._ended)

    def _next(self) -> list[_Query]:
        queries: list[_Query] = []
        while self._waiting and len(queries) < self._settings.batch:
            query = self._waiting.popleft()
            if not query.answer.done():  # done: whoever asked has left
                query.sent()
                queries.append(query)
        return queries

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._send()
        if not task.cancelled():
            task.result()  # raises nothing of its own; a mistake in it must show

    async def _serve(self, queries: Sequence[_Query]) -> None:
        try:
            await self._ask(queries)
        finally:
            # only for those that are left, when this was cancelled or a mistake ended it
            why = _CLOSED if self._closed else Failed("the request ended without an answer")
            _settle(queries, [why] * len(queries))

    async def _ask(self, queries: Sequence[_Query]) -> None:
        """Ask for `queries` in one request, in halves if that is refused or too much."""
        found = await self._reply([q.text for q in queries], max(q.ends_s for q in queries))
        if isinstance(found, _Refused) and len(queries) > 1:
            half = len(queries) // 2
            await self._ask(queries[:half])
            await self._ask(queries[half:])
        elif isinstance(found, _Refused | Failed):
            _settle(queries, [Failed(found.why)] * len(queries))
        else:
            _settle(queries, found)

    async def _reply(
        self, texts: Sequence[str], ends_s: float
    ) -> Sequence[Sequence[Passage]] | Failed | _Refused:
        clock = asyncio.get_running_loop().time
        request = Request(self._settings.url, _HEADERS, request_body(texts, self._settings.topk))
        attempt, resent = 1, False
        while True:
            reply = await self._attempt(request, ends_s - clock())
            if isinstance(reply, ReplyTooLongError):  # one for fewer queries is shorter
                return _Refused(f"{reply.detail}; lower retriever.topk from {self._settings.topk}")
            read = self._read(reply, len(texts))
            if not isinstance(read, str):
                return read
            nonsense = isinstance(reply, Reply) and 200 <= reply.status < 300
            effort = Effort(
                attempt=attempt,
                attempts=_ATTEMPTS_AT_NONSENSE if nonsense else _ATTEMPTS,
                remaining_s=ends_s - clock(),
                resent=resent,
                now_s=time.time(),
            )
            decision = decide(reply, effort, jitter=self._jitter)
            if isinstance(decision, GiveUp):
                refused = isinstance(reply, Reply) and reply.status in _THE_REQUESTS_FAULT
                return (_Refused if refused else Failed)(read)
            attempt += decision.counted
            resent = resent or not decision.counted
            await asyncio.sleep(decision.after_s)

    async def _attempt(self, request: Request, left_s: float) -> Reply | TransportError:
        self.requests += 1
        timeout_s = max(0.0, min(self._settings.timeout_s, left_s))
        try:
            return await self._transport.send(request, timeout_s=timeout_s)
        except TransportError as error:
            return error.with_traceback(None)

    def _read(
        self, reply: Reply | TransportError, queries: int
    ) -> Sequence[Sequence[Passage]] | str:
        """The passages for each query, at most ``topk``, or what is wrong with the reply."""
        if isinstance(reply, TransportError):
            return reply.detail
        if not 200 <= reply.status < 300:
            return reply_complaint(reply.status, reply.headers, reply.body)
        try:
            found = passages_in(reply.body, queries=queries)
        except DataError as error:
            return str(error)
        # a server in front of a search engine on the web does not heed topk
        return [passages[: self._settings.topk] for passages in found]


class _Refused(msgspec.Struct, frozen=True):
    """The request itself is at fault, or asks for too much: another would fare no better."""

    why: str


def _settle(queries: Sequence[_Query], found: Sequence[PostedSearch]) -> None:
    for query, result in zip(queries, found, strict=True):
        if not query.answer.done():
            query.answer.set_result(result)
