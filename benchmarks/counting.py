"""Judges in several processes behind one address, which write down who asked when."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection

import msgspec
import uvloop
from asking import TEXT
from serving import BACKLOG, Quick, Server, in_process, reply

_ROW = re.compile(rb"(\d+) %b" % TEXT[:40].encode())
_TOLD = "told"


class Asked(msgspec.Struct, frozen=True):
    """The requests of a while: of which row, and when each came and was answered."""

    rows: list[int]
    came_ns: list[int]
    answered_ns: list[int]

    @property
    def peak(self) -> int:
        """The most requests that were with the judges at once, all of them together."""
        changes = [(at, 1) for at in self.came_ns] + [(at, -1) for at in self.answered_ns]
        now = most = 0
        for _, change in sorted(changes):  # of one instant, answers come before requests
            now += change
            most = max(most, now)
        return most


class Judges:
    """Several processes that are one judge."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self._servers = servers
        self.url = servers[0].url
        self.pids = [server.pid for server in servers]

    def asked(self) -> Asked:
        """What they were asked since they were last looked at; nobody asks meanwhile."""
        parts = []
        for server in self._servers:
            server.pipe.send(_TOLD)
            parts.append(server.pipe.recv())
        return Asked(
            [row for part in parts for row in part.rows],
            [at for part in parts for at in part.came_ns],
            [at for part in parts for at in part.answered_ns],
        )


@contextlib.contextmanager
def judges(count: int, latency_s: float) -> Iterator[Judges]:
    """`count` processes that answer at one address after `latency_s`, as long as the block.

    A row's score is that of `score_of`, so that an answer that went to another row is seen. The
    kernel spreads the connections over the processes.
    """
    with socket.socket() as held, contextlib.ExitStack() as stack:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))  # never listens: it keeps the port
        how = held.getsockname()[1], latency_s
        yield Judges([stack.enter_context(in_process(_serve, how)) for _ in range(count)])


def score_of(row: int) -> int:
    """What the judges say about the row of that number: 1 to 10."""
    return row % 10 + 1


class _Counting(Quick):
    """Writes down what it is asked."""

    _replies = tuple(reply(score_of(row)) for row in range(10))

    def __init__(self, latency_s: float, book: Asked) -> None:
        super().__init__(latency_s)
        self._book = book

    def asked(self, request: bytes) -> None:
        found = _ROW.search(request)
        row = int(found[1]) if found else 0
        self._book.rows.append(row)
        self._book.came_ns.append(time.monotonic_ns())
        self.later(self._answer, row)

    def _answer(self, row: int) -> None:
        self._book.answered_ns.append(time.monotonic_ns())
        self.write(self._replies[row % len(self._replies)])


def _serve(how: tuple[int, float], pipe: Connection) -> None:
    port, latency_s = how

    async def main() -> None:
        book = Asked([], [], [])
        await asyncio.get_running_loop().create_server(
            lambda: _Counting(latency_s, book), "127.0.0.1", port, reuse_port=True, backlog=BACKLOG
        )
        pipe.send(f"http://127.0.0.1:{port}/v1")
        while await asyncio.to_thread(pipe.recv) == _TOLD:
            pipe.send(book)
            for column in (book.rows, book.came_ns, book.answered_ns):
                column.clear()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
