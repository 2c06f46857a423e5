"""Judges and retrievers in a process of their own, so that their CPU time is not ours."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import re
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, cast

import uvloop
from aiohttp import web

from zerowait.search import Passage
from zerowait.search.wire import reply_body
from zerowait.testing import FakeJudge, Script

_CONTENT = "The reasoning is clear, and the answer follows from it.\\nScore: "
_BODY = (
    '{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m","choices":'
    '[{"index":0,"message":{"role":"assistant","content":"%s"},"finish_reason":"stop"}]'
    ',"usage":{"prompt_tokens":500,"completion_tokens":16,"total_tokens":516}}'
)
_REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)
BACKLOG = 4096
START_S = 120.0


class Server(NamedTuple):
    """A server in a process of its own: where, which process, and a pipe to it."""

    url: str
    pid: int
    pipe: Connection


@contextlib.contextmanager
def judge_process(script: Script) -> Iterator[str]:
    """The base URL of a fake judge that lives as long as the block."""
    with in_process(_serve, script) as server:
        yield server.url


@contextlib.contextmanager
def quick_judge(latency_s: float = 0.0) -> Iterator[str]:
    """The base URL of a judge that does one thing: say 7 to everybody, after `latency_s`.

    The fake judge with all its faults takes more CPU for an answer than an engine for asking.
    """
    with in_process(_serve_quickly, latency_s) as server:
        yield server.url


@contextlib.contextmanager
def slow_retriever(latency_s: float) -> Iterator[str]:
    """The URL of a ``/retrieve`` that answers any request after `latency_s`."""
    with in_process(_serve_passages, latency_s) as server:
        yield server.url


def show_load() -> None:
    """Print how busy the machine was: with other work on it, look at ratios only."""
    one, five, _ = os.getloadavg()
    cpus = os.cpu_count()
    print(f"load {one:.1f} (1 min) {five:.1f} (5 min) on {cpus} CPUs, this benchmark's included")


def cpu_s(pid: int) -> float:
    """User and system time of a process, all its threads, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def in_process(serve: Callable[[Any, Connection], None], how: object) -> Iterator[Server]:
    """A server as long as the block: ``serve(how, pipe)`` sends its URL, and ends when told to."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(serve, how, theirs), daemon=True)
    process.start()
    theirs.close()  # with it open here, the end of a process that died would never be seen
    try:
        yield Server(_url_from(ours, process), process.pid or 0, ours)
    finally:
        with contextlib.suppress(OSError):
            ours.send("stop")
        process.join(timeout=10)
        process.terminate()


def _run(serve: Callable[[Any, Connection], None], how: object, pipe: Connection) -> None:
    try:
        serve(how, pipe)
    except Exception as error:
        pipe.send(_last_line(error))
        raise


def _last_line(error: BaseException) -> str:
    """The last line of a traceback."""
    return "".join(traceback.format_exception_only(error)).strip()


def _url_from(pipe: Connection, process: BaseProcess) -> str:
    """The URL that the process sends.

    Raises:
        RuntimeError: it sent something else, ended, or said nothing for `START_S`.
    """
    if not pipe.poll(START_S):
        raise RuntimeError(f"the server's process said nothing for {START_S:g} s")
    try:
        said = str(pipe.recv())
    except EOFError:
        process.join(timeout=10)
        raise RuntimeError(f"the server's process ended with {process.exitcode}") from None
    if not said.startswith("http://"):
        raise RuntimeError(f"the server's process ended: {said}")
    return said


def _serve(script: Script, pipe: Connection) -> None:
    with FakeJudge(script) as judge:
        pipe.send(judge.url)
        pipe.recv()


def reply(value: int) -> bytes:
    """A judge's whole answer, with its head."""
    body = (_BODY % f"{_CONTENT}{value}").encode()
    return _REPLY % (len(body), body)


class Quick(asyncio.Protocol):
    """One connection of a judge that answers everybody after `latency_s`."""

    _seven = reply(7)

    def __init__(self, latency_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._latency_s = latency_s
        self._wire: asyncio.Transport | None = None
        self._got = b""

    def asked(self, request: bytes) -> None:
        """Somebody sent a whole request."""
        del request
        self.later(self.write, self._seven)

    def later(self, answer: Callable[..., None], *about: Any) -> None:
        """Call ``answer(*about)`` when it is time to."""
        self._loop.call_later(self._latency_s, answer, *about)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has come."""
        self._wire = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Some bytes: parts of requests, or several."""
        self._got += data
        while (head := self._got.find(b"\r\n\r\n") + 4) > 3:
            found = _LENGTH.search(self._got, 0, head)
            end = head + (int(found[1]) if found else 0)
            if len(self._got) < end:
                return
            request, self._got = self._got[:end], self._got[end:]
            self.asked(request)

    def connection_lost(self, exc: Exception | None) -> None:
        """Somebody has gone."""
        del exc
        self._wire = None

    def write(self, answer: bytes) -> None:
        """Send an answer, to a caller who is still there."""
        if self._wire is not None:
            self._wire.write(answer)


def _serve_passages(latency_s: float, pipe: Connection) -> None:
    async def retrieve(request: web.Request) -> web.Response:
        asked = await request.json()
        await asyncio.sleep(latency_s)
        found = [[Passage(f"Title\n{query}", "1", 1.0)] for query in asked["queries"]]
        return web.Response(body=reply_body(found, scores=True), content_type="application/json")

    async def main() -> None:
        app = web.Application()
        app.router.add_post("/retrieve", retrieve)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=BACKLOG).start()
        pipe.send(f"http://127.0.0.1:{runner.addresses[0][1]}/retrieve")
        await asyncio.to_thread(pipe.recv)
        await runner.cleanup()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def _serve_quickly(latency_s: float, pipe: Connection) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Quick(latency_s), "127.0.0.1", 0, backlog=BACKLOG)
        pipe.send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        await asyncio.to_thread(pipe.recv)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
