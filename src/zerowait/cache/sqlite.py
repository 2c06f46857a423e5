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

from zerowait.cache.claims import Claims
from zerowait.cache.limits import CacheLimits, Trimmer
from zerowait.cache.served import StoreCounters
from zerowait.cache.sqlite_file import open_database
from zerowait.cache.store import Entry, StoreError, StoreStats, storable
from zerowait.errors import ClosedError

_LARGEST_BATCH: Final = 512
_LOOK_S: Final = 0.05
"""Between two looks for what another process was asking for."""

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
    CLAIM = "claim"
    PUT = "put"
    RELEASE = "release"
    COUNT = "count"
    CLOSE = "close"


class _Claimed(Enum):
    """Another process asks for it, or another call of this one."""

    CLAIMED = "claimed"


_CLAIMED: Final = _Claimed.CLAIMED


class _Order:
    """Something to do for a caller that waits for `done`."""

    __slots__ = ("do", "done", "give_up_s", "what")

    def __init__(self, do: _Do, what: Any = None, *, wait_s: float = 0.0) -> None:
        self.do = do
        self.what = what
        self.give_up_s = time.monotonic() + wait_s if wait_s else 0.0
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
        limits: CacheLimits = CacheLimits(),  # noqa: B008 - frozen
        busy_timeout_s: float = 10.0,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.path = Path(path).expanduser()
        self._served = StoreCounters(limits, wall=wall)
        self._trimmer = Trimmer(limits, wall=wall)
        self._closed = False
        self._claimed: set[str] = set()
        self._inbox: SimpleQueue[_Order] = SimpleQueue()
        connection = open_database(self.path, busy_timeout_s=busy_timeout_s)
        # a daemon, because a store that was never closed must not keep the interpreter from
        # ending: what a put has promised is committed by then
        self._thread = Thread(
            target=_Server(
                connection,
                self._inbox,
                self._trimmer,
                Claims(self.path),
                lambda entry: not limits.expired(entry.created, wall()),
            ).serve,
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

    async def claim(self, key: str, *, wait_s: float) -> Entry | None:
        """The entry; or None, when it is for the caller to ask: see `Store.claim`.

        Raises:
            StoreError: the file cannot be read.
            ClosedError: the store was closed.
        """
        try:
            entry = await self._result(_Order(_Do.CLAIM, key.encode(), wait_s=wait_s))
        except asyncio.CancelledError:  # it may have been granted by now
            self._claimed.add(key)
            self.release(key)
            raise
        if entry is None:
            self._claimed.add(key)
        return self._served.found(entry)

    def release(self, key: str) -> None:
        """Let other processes ask for what is claimed here; returns at once."""
        if key in self._claimed and not self._closed:
            self._claimed.discard(key)
            self._inbox.put(_Order(_Do.RELEASE, key.encode()))

    async def put(self, key: str, entry: Entry) -> None:
        """Keep `entry`; returns after the commit.

        Raises:
            StoreError: it was not kept.
            ClosedError: the store was closed.
        """
        row = (key.encode(), *msgspec.structs.astuple(storable(entry)))
        await self._result(_Order(_Do.PUT, row))
        self._claimed.discard(key)
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


class _Server:
    """The thread: carries out orders batch by batch, until one of them closes the file.

    Args:
        connection: to the file.
        inbox: of orders.
        trimmer: keeps the file within its limits.
        claims: of this process.
        is_fresh: whether an entry is not too old.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        inbox: SimpleQueue[_Order],
        trimmer: Trimmer,
        claims: Claims,
        is_fresh: Callable[[Entry], bool],
    ) -> None:
        self._connection = connection
        self._inbox = inbox
        self._trimmer = trimmer
        self._claims = claims
        self._is_fresh = is_fresh
        self._parked: list[_Order] = []
        self._look_s = 0.0
        self._acts: Mapping[_Do, Callable[[Sequence[Any]], Sequence[Any]]] = {
            # reads first: nobody waits behind a commit for what is there already
            _Do.GET: self._read,
            _Do.CLAIM: self._claim,
            _Do.PUT: self._write,
            _Do.RELEASE: self._release,
            _Do.COUNT: self._count,
            _Do.CLOSE: self._close,
        }

    def serve(self) -> None:
        """Until the file is closed."""
        closing = False
        while not closing:
            # a step drops more than a batch can bring, so one between two batches is enough
            while self._trimmer.step(self._connection) and self._inbox.empty():
                pass
            batch = self._gather()
            closing = bool(batch) and batch[-1].do is _Do.CLOSE
            batch = [*self._due(closing=closing), *batch]
            if batch:
                results = self._carry_out(batch)
                _report(*self._park(batch, results, closing=closing))

    def _gather(self) -> list[_Order]:
        """One order, waited for, and those that are there already; nothing comes after a CLOSE."""
        batch: list[_Order] = []
        with suppress(Empty):
            batch.append(self._inbox.get(timeout=self._pause_s()))
            while len(batch) < _LARGEST_BATCH and batch[-1].do is not _Do.CLOSE:
                batch.append(self._inbox.get_nowait())
        return batch

    def _pause_s(self) -> float | None:
        """How long nothing need be done without an order."""
        return max(0.0, self._look_s - time.monotonic()) if self._parked else None

    def _due(self, *, closing: bool) -> list[_Order]:
        """Those who wait for another process, if it is time to look again."""
        if not self._parked or (time.monotonic() < self._look_s and not closing):
            return []
        parked, self._parked = self._parked, []
        return [order for order in parked if not order.done.cancelled()]

    def _park(
        self, batch: Sequence[_Order], results: Sequence[Any], *, closing: bool
    ) -> tuple[list[_Order], list[Any]]:
        """What is to be reported; who has to wait for another process is looked at again."""
        now_s = time.monotonic()
        orders, told = [], []
        for order, result in zip(batch, results, strict=True):
            if result is _CLAIMED and not closing and now_s < order.give_up_s:
                self._parked.append(order)
            else:
                orders.append(order)
                told.append(None if result is _CLAIMED else result)
        if self._parked and self._look_s <= now_s:
            self._look_s = now_s + _LOOK_S
        return orders, told

    def _carry_out(self, batch: Sequence[_Order]) -> list[Any]:
        """Each order's result, or the exception that it met."""
        results: dict[int, Any] = {}
        for do, act in self._acts.items():
            mine = [place for place, order in enumerate(batch) if order.do is do]
            if not mine:
                continue
            try:
                values = act([batch[place].what for place in mine])
            except Exception as error:  # noqa: BLE001 - the thread's edge: who waits must hear it
                values = [error] * len(mine)
            results.update(zip(mine, values, strict=True))
        return [results[place] for place in range(len(batch))]

    def _read(self, keys: Sequence[bytes]) -> list[Entry | None]:
        found: dict[bytes, Entry] = {}
        at = 0
        while at < len(keys):
            size = next(
                size for size in _READ_SIZES if size >= min(len(keys) - at, _READ_SIZES[-1])
            )
            some = keys[at : at + size]
            # few different statements stay compiled: the last key fills the open places
            filled = [*some, *repeat(some[-1], size - len(some))]
            rows = self._connection.execute(_READ[size], filled)
            found.update((row[0], Entry(*row[1:])) for row in rows)
            at += size
        return [found.get(key) for key in keys]

    def _claim(self, keys: Sequence[bytes]) -> list[Entry | _Claimed | None]:
        """Entries; None for what is claimed from now on, or cannot be claimed."""
        taken = self._claims.take(keys)
        # read after that: another process may have brought it, and let it go, just before
        try:
            entries = [self._if_fresh(entry) for entry in self._read(keys)]
        except BaseException:
            self._claims.drop(taken)
            raise
        self._claims.drop(
            key for key, entry in zip(keys, entries, strict=True) if entry and key in taken
        )
        told: list[Entry | _Claimed | None] = []
        for key, entry in zip(keys, entries, strict=True):
            told.append(entry if entry or key in taken else _CLAIMED)
            taken.discard(key)  # of two calls here that want the same, one asks
        return told

    def _if_fresh(self, entry: Entry | None) -> Entry | None:
        return entry if entry is not None and self._is_fresh(entry) else None

    def _write(self, rows: Sequence[_Row]) -> list[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._connection.executemany(_WRITE, rows)
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        self._claims.drop(row[0] for row in rows)
        return [None] * len(rows)

    def _release(self, keys: Sequence[bytes]) -> list[None]:
        self._claims.drop(keys)
        return [None] * len(keys)

    def _count(self, orders: Sequence[None]) -> list[int]:
        (entries,) = self._connection.execute("SELECT count(*) FROM replies").fetchone()
        return [entries] * len(orders)

    def _close(self, orders: Sequence[None]) -> list[None]:
        self._claims.close()
        self._connection.close()
        return [None] * len(orders)


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
