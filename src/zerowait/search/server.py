"""HTTP server with ``POST /retrieve`` over an index, compatible with Search-R1."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

import msgspec
from aiohttp import web

from zerowait.errors import ConfigError, DataError
from zerowait.search.batcher import SearchBatcher, SearchIndex
from zerowait.search.index import TooMuchFoundError
from zerowait.search.wire import RetrieveRequest, reply_body

_PATH: Final = "/retrieve"
_LARGEST_BODY_BYTES: Final = 64 * 2**20
_MOST_QUERIES: Final = 16_384  # Search-R1 asks for a whole batch of trajectories at once
_LONGEST_QUERY_CHARS: Final = 32_768
_MOST_PASSAGES: Final = 1000
_MOST_WAITING: Final = 65_536
_BACKLOG: Final = 1024
_DECODER: Final = msgspec.json.Decoder(RetrieveRequest)

_Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _RetrievalService:
    """HTTP handlers over one index."""

    def __init__(self, index: SearchIndex, topk: int) -> None:
        self._index = index
        self._topk = topk
        self._counts: Counter[str] = Counter()
        self.batches = SearchBatcher(index)

    async def retrieve(self, request: web.Request) -> web.Response:
        self._counts["requests"] += 1
        declared, most = request.content_length or 0, request.client_max_size
        if declared > most:  # refused without reading it
            raise web.HTTPRequestEntityTooLarge(max_size=most, actual_size=declared)
        if self.batches.waiting >= _MOST_WAITING:
            self._counts["turned_away"] += 1
            raise web.HTTPServiceUnavailable(
                text=f"{self.batches.waiting} queries are waiting already; try again later",
                headers={"Retry-After": "1"},
            )
        try:
            wanted = parse_retrieve_request(await request.read())
        except ValueError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        self._counts["queries"] += len(wanted.queries)
        topk = self._topk if wanted.topk is None else wanted.topk
        found = await self.batches.find(wanted.queries, topk)
        return _json(reply_body(found, scores=wanted.return_scores))

    async def healthz(self, _: web.Request) -> web.Response:
        state = {"status": "ok", "kind": self._index.kind, "documents": len(self._index)}
        return _json(msgspec.json.encode(state))

    async def metrics(self, _: web.Request) -> web.Response:
        batches = self.batches
        families = [
            ("requests_total", "counter", "POSTs to /retrieve.", self._counts["requests"]),
            ("refused_total", "counter", "Of these, answered 4xx.", self._counts["refused"]),
            ("turned_away_total", "counter", "Of these, 503.", self._counts["turned_away"]),
            ("failed_total", "counter", "Of these, answered 500.", self._counts["failed"]),
            ("queries_total", "counter", "Queries in these.", self._counts["queries"]),
            ("searches_total", "counter", "Batches searched.", batches.searches),
            ("busy_seconds_total", "counter", "Time spent searching.", f"{batches.busy_s:.6f}"),
            ("waiting", "gauge", "Queries that wait for a search.", batches.waiting),
            ("documents", "gauge", "Documents in the index.", len(self._index)),
        ]
        lines = []
        for name, kind, meaning, value in families:
            full = f"zerowait_retriever_{name}"
            lines += [f"# HELP {full} {meaning}", f"# TYPE {full} {kind}", f"{full} {value}"]
        return web.Response(text="\n".join([*lines, ""]), content_type="text/plain")

    @web.middleware
    async def errors_as_json(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Middleware: an error becomes ``{"error": text}``, and is counted for ``/retrieve``."""
        try:
            return await handler(request)
        except web.HTTPException as error:
            status, text = error.status, error.text or error.reason
            headers = {k: v for k, v in error.headers.items() if k in {"Allow", "Retry-After"}}
        except TooMuchFoundError as error:
            status, text, headers = 413, str(error), {}
        except DataError as error:
            status, text, headers = 500, str(error), {}
        if request.path == _PATH and status != 503:
            self._counts["refused" if status < 500 else "failed"] += 1
        return _json(msgspec.json.encode({"error": text}), status=status, headers=headers)


def parse_retrieve_request(body: bytes) -> RetrieveRequest:
    """The request in `body`.

    Raises:
        ValueError: it is no retrieve request, or exceeds a limit; the message says which.
    """
    try:
        wanted = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"the body is not a retrieve request: {error}") from None
    if len(wanted.queries) > _MOST_QUERIES:
        raise ValueError(f"{len(wanted.queries)} queries in one request; at most {_MOST_QUERIES}")
    if wanted.topk is not None and not 1 <= wanted.topk <= _MOST_PASSAGES:
        raise ValueError(f"topk must be from 1 to {_MOST_PASSAGES}, not {wanted.topk}")
    for number, query in enumerate(wanted.queries):
        if len(query) > _LONGEST_QUERY_CHARS:
            raise ValueError(
                f"queries[{number}] has {len(query)} characters; at most {_LONGEST_QUERY_CHARS}"
            )
    return wanted


@asynccontextmanager
async def serving_index(
    index: SearchIndex,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    topk: int = 3,
    drain_s: float = 10.0,
) -> AsyncIterator[str]:
    """Serve the index while the context lasts; the URL of ``/retrieve``.

    Args:
        index: to search; it is not closed.
        host: the address to listen on.
        port: 0 takes a free one.
        topk: passages for a request without ``topk``, from 1 to 1000.
        drain_s: seconds that requests in flight may take when the context ends.

    Raises:
        ConfigError: the address cannot be bound, or `port` or `topk` is out of range.
    """
    if not 1 <= topk <= _MOST_PASSAGES:
        raise ConfigError(f"topk must be from 1 to {_MOST_PASSAGES}, not {topk}")
    if not 0 <= port < 2**16:  # the system would use its lowest 16 bits
        raise ConfigError(f"port must be from 0 to 65535, not {port}")
    service = _RetrievalService(index, topk)
    app = web.Application(client_max_size=_LARGEST_BODY_BYTES, middlewares=[service.errors_as_json])
    app.add_routes(
        [
            web.post(_PATH, service.retrieve),
            web.get("/healthz", service.healthz),
            web.get("/metrics", service.metrics),
        ]
    )
    # A handler is cancelled when its client disconnects, so that its queries leave the queue
    runner = web.AppRunner(
        app, access_log=None, handler_cancellation=True, shutdown_timeout=drain_s
    )
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port, backlog=_BACKLOG).start()
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {host} port {port}: {error.strerror}; name another port "
                "(--port), or 0 for a free one"
            ) from None
        bound = runner.addresses[0][1]
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{bound}{_PATH}"
    finally:
        await runner.cleanup()
        await service.batches.aclose()


def _json(
    body: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)
