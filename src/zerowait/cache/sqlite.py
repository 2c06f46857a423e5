"""Judged replies in one SQLite file: one thread owns it, and writes what gathers meanwhile.

While a batch is being written, the next one gathers; so a lone put is committed at once, and
hundreds of waiting puts share one commit. Between batches it keeps the file within its limits.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from itertools import repeat
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, TypeAlias

import msgspec

from zerowait.cache.limits import Limits, Trimmer
from zerowait.cache.served import Served
from zerowait.cache.sqlite_file import open_database
from zerowait.cache.store import Entry, StoreError, StoreStats, storable
from zerowait.errors import ClosedError

_LARGEST_BATCH: Final = 512
_READ_SIZES: Final = (1, 8, 64, 512)
_COLUMNS: Final = "key, reply, verdict, judge, model, fingerprint, created"
_WRITE: Final = f"""
    INSERT INTO replies ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET reply = excluded.reply, verdict = excluded.verdict,
        judge = excluded.judge, model = excluded.model, fingerprint = excluded.fingerprint,
        created = excluded.created
"""  # noqa: S608 - constants
_READ: Final = {
    size: f"SELECT {_COLUMNS} FROM replies WHERE key IN ({', '.join('?' * size)})"  # noqa: S608 - constants
    for size in _READ_SIZES
}

_Row: TypeAlias = tuple[bytes, bytes, bytes, str, str, str, float]


class _Do(Enum):
    GET = "get"
    PUT = "put"
    COUNT = "count"
    CLOSE = "close"


class _Order:
    """Something to do for a caller that waits for `done`."""

    __slots__ = ("do", "done", "what")

    def __init__(self, do: _Do, what: Any = None) -> None:
        self.do = do
        self.what = what
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class SqliteStore:
    """A `Store` in the SQLite file `path`, for any number of loops and processes at once.

    Args:
        path: on a local disk; ``~`` is the home directory.
        limits: the oldest entries beyond them are dropped, between other work.
        busy_timeout_s: how long a commit waits for other processes before it fails.
        wall: Unix time in seconds.

    Raises:
        ConfigError: see `zerowait.cache.sqlite_file.open_database`.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        busy_timeout_s: float = 10.0,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.path = Path(path).expanduser()
        self._served = Served(limits, wall=wall)
        self._trimmer = Trimmer(limits, wall=wall)
        self._closed = False
        self._inbox: SimpleQueue[_Order] = SimpleQueue()
        connection = open_database(self.path, busy_timeout_s=busy_timeout_s)
        # a daemon, because a store that was never closed must not keep the interpreter from
        # ending: what a put has promised is committed by then
        self._thread = Thread(
            target=_serve,
            args=(connection, self._inbox, self._trimmer),
            name="zerowait-cache",
            daemon=True,
        )
        self._thread.start()

    def peek(self, key: str) -> Entry | None:  # noqa: ARG002 - the port's signature
        """None: every entry is on disk."""
        return None

    async def get(self, key: str) -> Entry | None:
        """The entry, or None.

        Raises:
            StoreError: the file cannot be read.
            ClosedError: the store was closed.
        """
        return self._served.found(await self._result(_Order(_Do.GET, key.encode())))

    async def put(self, key: str, entry: Entry) -> None:
        """Keep `entry`; returns after the commit.

        Raises:
            StoreError: it was not kept.
            ClosedError: the store was closed.
        """
        row = (key.encode(), *msgspec.structs.astuple(storable(entry)))
        await self._result(_Order(_Do.PUT, row))
        self._served.puts += 1

    async def stats(self) -> StoreStats:
        """Counts, and the size of the file with its log."""
        entries = await self._result(_Order(_Do.COUNT))
        files = (self.path, self.path.with_name(self.path.name + "-wal"))
        return self._served.stats(
            entries=entries,
            size_bytes=sum(file.stat().st_size for file in files if file.exists()),
            evicted=self._trimmer.evicted,
        )

    async def aclose(self) -> None:
        """Carry out what was ordered, then close the file and end the thread. Idempotent."""
        if self._closed:
            return
        self._closed = True
        closing = _Order(_Do.CLOSE)
        self._inbox.put(closing)
        await closing.done
        self._thread.join()

    async def _result(self, order: _Order) -> Any:
        if self._closed:
            raise ClosedError(f"the cache {self.path} was closed")
        self._inbox.put(order)
        result = await order.done
        if isinstance(result, Exception):
            raise StoreError(
                f"the cache {self.path} failed ({result}): see whether the disk is full or another "
                "program holds the file, or set cache.path to another one"
            ) from result
        return result


def _serve(connection: sqlite3.Connection, inbox: SimpleQueue[_Order], trimmer: Trimmer) -> None:
    """The thread: carry out orders batch by batch, until one of them closes the file."""
    closing = False
    while not closing:
        # a step drops more than a batch can bring, so one between two batches is enough
        while trimmer.step(connection) and inbox.empty():
            pass
        batch = _gather(inbox)
        closing = batch[-1].do is _Do.CLOSE
        _report(batch, _carry_out(connection, batch))


def _gather(inbox: SimpleQueue[_Order]) -> list[_Order]:
    """One order, waited for, and those that are there already; nothing comes after a CLOSE."""
    batch = [inbox.get()]
    with suppress(Empty):
        while len(batch) < _LARGEST_BATCH and batch[-1].do is not _Do.CLOSE:
            batch.append(inbox.get_nowait())
    return batch


def _carry_out(connection: sqlite3.Connection, batch: Sequence[_Order]) -> list[Any]:
    """Each order's result, or the exception that it met."""
    results: dict[int, Any] = {}
    for do, act in _ACTS.items():
        mine = [place for place, order in enumerate(batch) if order.do is do]
        if not mine:
            continue
        try:
            values = act(connection, [batch[place].what for place in mine])
        except Exception as error:  # noqa: BLE001 - the thread's edge: whoever waits must hear it
            values = [error] * len(mine)
        results.update(zip(mine, values, strict=True))
    return [results[place] for place in range(len(batch))]


def _read(connection: sqlite3.Connection, keys: Sequence[bytes]) -> list[Entry | None]:
    found: dict[bytes, Entry] = {}
    at = 0
    while at < len(keys):
        size = next(size for size in _READ_SIZES if size >= min(len(keys) - at, _READ_SIZES[-1]))
        some = keys[at : at + size]
        # few different statements stay compiled: the last key fills the open places
        filled = [*some, *repeat(some[-1], size - len(some))]
        rows = connection.execute(_READ[size], filled)
        found.update((row[0], Entry(*row[1:])) for row in rows)
        at += size
    return [found.get(key) for key in keys]


def _write(connection: sqlite3.Connection, rows: Sequence[_Row]) -> list[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.executemany(_WRITE, rows)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return [None] * len(rows)


def _count(connection: sqlite3.Connection, orders: Sequence[None]) -> list[int]:
    (entries,) = connection.execute("SELECT count(*) FROM replies").fetchone()
    return [entries] * len(orders)


def _close(connection: sqlite3.Connection, orders: Sequence[None]) -> list[None]:
    connection.close()
    return [None] * len(orders)


_ACTS: Final[Mapping[_Do, Callable[[sqlite3.Connection, Sequence[Any]], Sequence[Any]]]] = {
    _Do.GET: _read,
    _Do.PUT: _write,
    _Do.COUNT: _count,
    _Do.CLOSE: _close,
}
"""Reads first: nobody waits behind a commit for what is there already."""


def _report(batch: Sequence[_Order], results: Iterable[Any]) -> None:
    """Wake each loop once, however many of its callers got a result."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for order, result in zip(batch, results, strict=True):
        by_loop.setdefault(order.done.get_loop(), []).append((order.done, result))
    for loop, settled in by_loop.items():
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, settled)


def _settle(settled: Iterable[tuple[asyncio.Future[Any], Any]]) -> None:
    for done, result in settled:
        if not done.done():  # done: its caller was cancelled
            done.set_result(result)
