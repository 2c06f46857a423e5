"""Sends queries to a ``/retrieve`` server: batches, retries, and splits of rejected batches."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeAlias

import msgspec

from zerowait.client import (
    GiveUp,
    Reply,
    ReplyTooLongError,
    Request,
    RetryContext,
    Transport,
    TransportError,
    decide,
)
from zerowait.errors import DataError
from zerowait.search.passages import Failed, Passage
from zerowait.search.settings import RetrieverSettings
from zerowait.search.wire import error_text, passages_in, request_body

QueryResult: TypeAlias = "Sequence[Passage] | Failed"

_HEADERS: Final = {"Content-Type": "application/json"}
_ATTEMPTS: Final = 8
_MALFORMED_ATTEMPTS: Final = 3
_REJECTED_STATUSES: Final = frozenset({400, 413, 422})
_CLOSED: Final = Failed("the retriever's client was closed")


class _Query(msgspec.Struct, frozen=True, eq=False):
    """A query in the queue.

    Args:
        text: the query.
        ends_s: its deadline on the loop's clock.
        sent: called when it is sent.
        answer: resolved with the passages, or with why there are none.
    """

    text: str
    ends_s: float
    sent: Callable[[], None]
    answer: asyncio.Future[QueryResult]


class QuerySender:
    """Sends queries to one ``/retrieve`` URL, several in a request; belongs to one event loop.

    While `concurrency` requests are in flight, queries are queued; the next request takes up to
    `batch` of them.

    Args:
        settings: URL, deadlines, concurrency and batch size.
        transport: sends requests; closed with the sender.
        jitter: random source of the waits before retries.
    """

    def __init__(self, settings: RetrieverSettings, transport: Transport, jitter: Random) -> None:
        self._settings = settings
        self._transport = transport
        self._jitter = jitter
        self._waiting: deque[_Query] = deque()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._closed = False
        self.requests = 0

    async def ask(self, text: str, sent: Callable[[], None]) -> QueryResult:
        """The passages for `text`, or why there are none; within ``deadline_s``.

        Args:
            text: the query. One whose caller is cancelled before it left is not asked.
            sent: called when it leaves.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[QueryResult] = loop.create_future()
        ends_s = loop.time() + self._settings.deadline_s
        self._waiting.append(_Query(text, ends_s, sent, answer))
        # In the loop's next turn, so that all queries of this turn go into one request
        loop.call_soon(self._start_requests)
        return await answer

    async def aclose(self) -> None:
        """Cancel every request; queries without an answer get a failure. Idempotent."""
        self._closed = True
        for task in self._in_flight:
            task.cancel()
        if self._in_flight:
            await asyncio.wait(list(self._in_flight))
        _resolve(self._waiting, [_CLOSED] * len(self._waiting))
        await self._transport.aclose()

    def _start_requests(self) -> None:
        """Start requests for the queries in the queue, up to the concurrency."""
        while not self._closed and len(self._in_flight) < self._settings.concurrency:
            queries = self._next_batch()
            if not queries:
                return
            task = asyncio.get_running_loop().create_task(self._send_batch(queries))
            self._in_flight.add(task)
            task.add_done_callback(self._on_request_done)

    def _next_batch(self) -> list[_Query]:
        queries: list[_Query] = []
        while self._waiting and len(queries) < self._settings.batch:
            query = self._waiting.popleft()
            if not query.answer.done():  # done: its caller was cancelled
                query.sent()
                queries.append(query)
        return queries

    def _on_request_done(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        self._start_requests()
        if not task.cancelled():
            task.result()  # a bug in it must be raised here, not lost

    async def _send_batch(self, queries: Sequence[_Query]) -> None:
        try:
            await self._ask_or_split(queries)
        finally:
            # Queries that are still open after a cancellation or a bug must not wait for ever
            why = _CLOSED if self._closed else Failed("the request ended without an answer")
            _resolve(queries, [why] * len(queries))

    async def _ask_or_split(self, queries: Sequence[_Query]) -> None:
        """Send `queries` in one request; in halves if it is rejected or its reply is too long."""
        found = await self._reply([q.text for q in queries], max(q.ends_s for q in queries))
        if isinstance(found, _Rejected) and len(queries) > 1:
            half = len(queries) // 2
            await self._ask_or_split(queries[:half])
            await self._ask_or_split(queries[half:])
        elif isinstance(found, _Rejected | Failed):
            _resolve(queries, [Failed(found.why)] * len(queries))
        else:
            _resolve(queries, found)

    async def _reply(
        self, texts: Sequence[str], ends_s: float
    ) -> Sequence[Sequence[Passage]] | Failed | _Rejected:
        clock = asyncio.get_running_loop().time
        request = Request(self._settings.url, _HEADERS, request_body(texts, self._settings.topk))
        attempt, resent = 1, False
        while True:
            reply = await self._attempt(request, ends_s - clock())
            if isinstance(reply, ReplyTooLongError):  # a reply for fewer queries is shorter
                return _Rejected(f"{reply.detail}; lower retriever.topk from {self._settings.topk}")
            read = self._read(reply, len(texts))
            if not isinstance(read, str):
                return read
            malformed = isinstance(reply, Reply) and 200 <= reply.status < 300
            context = RetryContext(
                attempt=attempt,
                attempts=_MALFORMED_ATTEMPTS if malformed else _ATTEMPTS,
                remaining_s=ends_s - clock(),
                resent=resent,
                now_s=time.time(),
            )
            decision = decide(reply, context, jitter=self._jitter)
            if isinstance(decision, GiveUp):
                rejected = isinstance(reply, Reply) and reply.status in _REJECTED_STATUSES
                return (_Rejected if rejected else Failed)(read)
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
        """The passages for each query, at most ``topk``; text if the reply is an error."""
        if isinstance(reply, TransportError):
            return reply.detail
        if not 200 <= reply.status < 300:
            return error_text(reply.status, reply.headers, reply.body)
        try:
            found = passages_in(reply.body, queries=queries)
        except DataError as error:
            return str(error)
        # Servers in front of a web search engine ignore topk
        return [passages[: self._settings.topk] for passages in found]


class _Rejected(msgspec.Struct, frozen=True):
    """The server rejected the request itself, or its reply is too long: a retry would not help."""

    why: str


def _resolve(queries: Sequence[_Query], found: Sequence[QueryResult]) -> None:
    for query, result in zip(queries, found, strict=True):
        if not query.answer.done():
            query.answer.set_result(result)
