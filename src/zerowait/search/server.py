"""``POST /retrieve`` over an index, in the form that Search-R1's clients and servers speak."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from aiohttp import web

from zerowait.errors import ConfigError
from zerowait.search.index import Index
from zerowait.search.passages import Passage
from zerowait.search.wire import RetrieveRequest, reply_body

_LARGEST_BODY_BYTES: Final = 64 * 2**20
_MOST_QUERIES: Final = 4096
_LONGEST_QUERY_CHARS: Final = 32_768
_MOST_PASSAGES: Final = 1000
_DECODER: Final = msgspec.json.Decoder(RetrieveRequest)


class _Service:
    """Answers from one index, in one thread of its own, so that the loop stays free."""

    def __init__(self, index: Index, topk: int) -> None:
        self._index = index
        self._topk = topk
        self._thread = ThreadPoolExecutor(1, "retriever")
        self._counts: Counter[str] = Counter()
        self._busy_s = 0.0

    async def retrieve(self, request: web.Request) -> web.Response:
        self._counts["requests"] += 1
        try:
            asked = understood(await request.read())
        except ValueError as error:
            self._counts["refused"] += 1
            return _json(msgspec.json.encode({"error": str(error)}), status=400)
        self._counts["queries"] += len(asked.queries)
        loop = asyncio.get_running_loop()
        body = await loop.run_in_executor(self._thread, self._answer, asked)
        return _json(body)

    def _answer(self, asked: RetrieveRequest) -> bytes:
        began = time.perf_counter()
        found = self._find(asked.queries, self._topk if asked.topk is None else asked.topk)
        body = reply_body(found, scores=asked.return_scores)
        self._busy_s += time.perf_counter() - began
        return body

    def _find(self, queries: list[str], topk: int) -> list[list[Passage]]:
        """Each different query is looked up once."""
        distinct = list(dict.fromkeys(queries))
        found = dict(zip(distinct, self._index.find(distinct, topk), strict=True))
        return [found[query] for query in queries]

    async def healthz(self, _: web.Request) -> web.Response:
        state = {"status": "ok", "kind": self._index.kind, "documents": len(self._index)}
        return _json(msgspec.json.encode(state))

    async def metrics(self, _: web.Request) -> web.Response:
        lines = []
        for name in ("requests", "refused", "queries"):
            lines += [
                f"# TYPE zerowait_retriever_{name}_total counter",
                f"zerowait_retriever_{name}_total {self._counts[name]}",
            ]
        lines += [
            "# TYPE zerowait_retriever_busy_seconds_total counter",
            f"zerowait_retriever_busy_seconds_total {self._busy_s:.6f}",
            "# TYPE zerowait_retriever_documents gauge",
            f"zerowait_retriever_documents {len(self._index)}",
            "",
        ]
        return web.Response(text="\n".join(lines), content_type="text/plain")

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)


def understood(body: bytes) -> RetrieveRequest:
    """The request in `body`.

    Raises:
        ValueError: it is none, or asks for more than is good; says what.
    """
    try:
        asked = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"the body is not a retrieve request: {error}") from None
    if len(asked.queries) > _MOST_QUERIES:
        raise ValueError(f"{len(asked.queries)} queries in one request; at most {_MOST_QUERIES}")
    if asked.topk is not None and not 1 <= asked.topk <= _MOST_PASSAGES:
        raise ValueError(f"topk must be from 1 to {_MOST_PASSAGES}, not {asked.topk}")
    for number, query in enumerate(asked.queries):
        if not query.strip() or len(query) > _LONGEST_QUERY_CHARS:
            raise ValueError(
                f"queries[{number}] is blank, or longer than {_LONGEST_QUERY_CHARS} characters"
            )
    return asked


@asynccontextmanager
async def serving_index(
    index: Index, *, host: str = "127.0.0.1", port: int = 8000, topk: int = 3
) -> AsyncIterator[str]:
    """The URL of ``/retrieve`` while the context lasts.

    Args:
        index: what is searched; stays open.
        host: the address it listens on.
        port: 0 takes a free one.
        topk: passages for a request that names no number.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    service = _Service(index, topk)
    app = web.Application(client_max_size=_LARGEST_BODY_BYTES)
    app.add_routes(
        [
            web.post("/retrieve", service.retrieve),
            web.get("/healthz", service.healthz),
            web.get("/metrics", service.metrics),
        ]
    )
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror}") from None
        bound = runner.addresses[0][1]
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{bound}/retrieve"
    finally:
        await runner.cleanup()
        service.close()


def _json(body: Any, *, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")
