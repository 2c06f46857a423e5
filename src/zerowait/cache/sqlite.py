"""Judged replies in one SQLite file, owned by one thread that works in batches.

While a batch is being written, the next one gathers; so a lone put is committed at once, and
hundreds of waiting puts share one commit. Between batches the thread keeps the file within its
limits.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import repeat
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, TypeAlias

import msgspec

from zerowait.cache.claims import Claims
from zerowait.cache.counters import StoreCounters
from zerowait.cache.limits import CacheLimits, Trimmer
from zerowait.cache.sqlite_file import open_database
from zerowait.cache.store import Entry, StoreError, StoreStats, storable
from zerowait.errors import ClosedError

_LARGEST_BATCH: Final = 512
_POLL_S: Final = 0.05
"""Seconds between two looks for a reply that another process is waiting for."""

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


class _Action(Enum):
    GET = "get"
    CLAIM = "claim"
    PUT = "put"
    RELEASE = "release"
    COUNT = "count"
    CLOSE = "close"


class _Taken(Enum):
    """The result of a claim that another process holds, or another call of this one."""

    TAKEN = "taken"


_TAKEN: Final = _Taken.TAKEN


@dataclass(slots=True, eq=False)
class _Job:
    """Work for the thread.

    Args:
        action: what to do.
        value: a key, a row or nothing.
        done: gets the result, or the exception as a value.
        give_up_s: until when a claim waits for another process, on the monotonic clock.
    """

    action: _Action
    value: Any
    done: asyncio.Future[Any]
    give_up_s: float = 0.0


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
        self._counters = StoreCounters(limits, wall=wall)
        self._trimmer = Trimmer(limits, wall=wall)
        self._closed = False
        self._claimed: set[str] = set()
        self._inbox: SimpleQueue[_Job] = SimpleQueue()
        connection = open_database(self.path, busy_timeout_s=busy_timeout_s)
        # a daemon, because a store that was never closed must not keep the interpreter from
        # ending: what a put has promised is committed by then
        self._thread = Thread(
            target=_Worker(
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
        return self._counters.found(await self._result(_Action.GET, key.encode()))

    async def claim(self, key: str, *, wait_s: float) -> Entry | None:
        """The entry; or None, and then the caller has to ask the judge: see `Store.claim`.

        Raises:
            StoreError: the file cannot be read.
            ClosedError: the store was closed.
        """
        try:
            entry = await self._result(_Action.CLAIM, key.encode(), wait_s=wait_s)
        except asyncio.CancelledError:  # the claim may have been granted by now
            self._claimed.add(key)
            self.release(key)
            raise
        if entry is None:
            self._claimed.add(key)
            self._counters.misses += 1
            return None
        return self._counters.found(entry)

    def release(self, key: str) -> None:
        """Release the claim of this store on `key`; returns at once."""
        if key in self._claimed and not self._closed:
            self._claimed.discard(key)
            self._send(_Action.RELEASE, key.encode())

    async def put(self, key: str, entry: Entry) -> None:
        """Keep `entry`; returns after the commit.

        Raises:
            StoreError: it was not kept.
            ClosedError: the store was closed.
        """
        if not (entry.judge + entry.model + entry.fingerprint).isascii():
            entry = storable(entry)
        row = (key.encode(), *msgspec.structs.astuple(entry))
        await self._result(_Action.PUT, row)
        self._claimed.discard(key)
        self._counters.puts += 1

    async def stats(self) -> StoreStats:
        """Counts, and the size of the file with its log."""
        entries = await self._result(_Action.COUNT)
        files = (self.path, self.path.with_name(self.path.name + "-wal"))
        return self._counters.stats(
            entries=entries,
            size_bytes=sum(file.stat().st_size for file in files if file.exists()),
            evicted=self._trimmer.evicted,
        )

    async def aclose(self) -> None:
        """Finish the jobs at hand, then close the file and end the thread. Idempotent."""
        if self._closed:
            return
        self._closed = True
        await self._send(_Action.CLOSE)
        self._thread.join()

    def _send(self, action: _Action, value: Any = None) -> asyncio.Future[Any]:
        """Hand a job to the thread."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._inbox.put(_Job(action, value, done))
        return done

    async def _result(self, action: _Action, value: Any = None, *, wait_s: float = 0.0) -> Any:
        """The result of a job of the thread.

        Args:
            action: what to do.
            value: a key, a row or nothing.
            wait_s: how long a claim waits for another process, in seconds.

        Raises:
            StoreError: the job failed.
            ClosedError: the store was closed.
        """
        if self._closed:
            raise ClosedError(f"the cache {self.path} was closed")
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        give_up_s = time.monotonic() + wait_s if wait_s else 0.0
        self._inbox.put(_Job(action, value, done, give_up_s))
        result = await done
        if isinstance(result, Exception):
            raise StoreError(
                f"the cache {self.path} failed ({result}): see whether the disk is full or another "
                "program holds the file, or set cache.path to another one"
            ) from result
        return result


class _Worker:
    """The thread's loop: does jobs batch by batch, until one of them closes the file.

    Args:
        connection: to the file.
        inbox: the jobs.
        trimmer: keeps the file within its limits.
        claims: the keys that this store claims.
        is_fresh: whether an entry is not too old.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        inbox: SimpleQueue[_Job],
        trimmer: Trimmer,
        claims: Claims,
        is_fresh: Callable[[Entry], bool],
    ) -> None:
        self._connection = connection
        self._inbox = inbox
        self._trimmer = trimmer
        self._claims = claims
        self._is_fresh = is_fresh
        self._waiting: list[_Job] = []
        self._poll_at_s = 0.0
        self._acts: Mapping[_Action, Callable[[Sequence[Any]], Sequence[Any]]] = {
            # reads first: they need not wait behind a commit
            _Action.GET: self._read,
            _Action.CLAIM: self._claim,
            _Action.PUT: self._write,
            _Action.RELEASE: self._release,
            _Action.COUNT: self._count,
            _Action.CLOSE: self._close,
        }

    def serve(self) -> None:
        """Work until the file is closed."""
        closing = False
        while not closing:
            # a step drops more than a batch can bring, so one between two batches is enough
            while self._trimmer.step(self._connection) and self._inbox.empty():
                pass
            batch = self._gather()
            closing = bool(batch) and batch[-1].action is _Action.CLOSE
            batch = [*self._due(closing=closing), *batch]
            if batch:
                results = self._results(batch)
                _deliver(*self._finished(batch, results, closing=closing))

    def _gather(self) -> list[_Job]:
        """Wait for one job and take those that are there already; a CLOSE is the last one."""
        batch: list[_Job] = []
        with suppress(Empty):
            batch.append(self._inbox.get(timeout=self._pause_s()))
            while len(batch) < _LARGEST_BATCH and batch[-1].action is not _Action.CLOSE:
                batch.append(self._inbox.get_nowait())
        return batch

    def _pause_s(self) -> float | None:
        """Seconds until the next poll; None where no claim waits for another process."""
        return max(0.0, self._poll_at_s - time.monotonic()) if self._waiting else None

    def _due(self, *, closing: bool) -> list[_Job]:
        """The claims that wait for another process, if it is time to look again."""
        if not self._waiting or (time.monotonic() < self._poll_at_s and not closing):
            return []
        waiting, self._waiting = self._waiting, []
        return [job for job in waiting if not job.done.cancelled()]

    def _finished(
        self, batch: Sequence[_Job], results: Sequence[Any], *, closing: bool
    ) -> tuple[list[_Job], list[Any]]:
        """The jobs that are done with their results; claims that have to wait stay here."""
        now_s = time.monotonic()
        jobs, finished = [], []
        for job, result in zip(batch, results, strict=True):
            if result is _TAKEN and not closing and now_s < job.give_up_s:
                self._waiting.append(job)
            else:
                jobs.append(job)
                finished.append(None if result is _TAKEN else result)
        if self._waiting and self._poll_at_s <= now_s:
            self._poll_at_s = now_s + _POLL_S
        return jobs, finished

    def _results(self, batch: Sequence[_Job]) -> list[Any]:
        """Each job's result, or the exception it raised."""
        results: dict[int, Any] = {}
        for action, act in self._acts.items():
            mine = [place for place, job in enumerate(batch) if job.action is action]
            if not mine:
                continue
            try:
                values = act([batch[place].value for place in mine])
            except Exception as error:  # noqa: BLE001 - raised to the caller that waits
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
            # few different statements stay compiled: the last key fills the free places
            filled = [*some, *repeat(some[-1], size - len(some))]
            rows = self._connection.execute(_READ[size], filled)
            found.update((row[0], Entry(*row[1:])) for row in rows)
            at += size
        return [found.get(key) for key in keys]

    def _claim(self, keys: Sequence[bytes]) -> list[Entry | _Taken | None]:
        """The entries; None for a key that this store claims from now on; or that it is taken."""
        taken = self._claims.take(keys)
        # read after that: another process may have stored it and released its claim just before
        try:
            entries = [self._if_fresh(entry) for entry in self._read(keys)]
        except BaseException:
            self._claims.drop(taken)
            raise
        self._claims.drop(
            key for key, entry in zip(keys, entries, strict=True) if entry and key in taken
        )
        results: list[Entry | _Taken | None] = []
        for key, entry in zip(keys, entries, strict=True):
            results.append(entry if entry or key in taken else _TAKEN)
            taken.discard(key)  # of two calls here that want the same, one asks
        return results

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

    def _count(self, jobs: Sequence[None]) -> list[int]:
        (entries,) = self._connection.execute("SELECT count(*) FROM replies").fetchone()
        return [entries] * len(jobs)

    def _close(self, jobs: Sequence[None]) -> list[None]:
        self._claims.close()
        self._connection.close()
        return [None] * len(jobs)


def _deliver(batch: Sequence[_Job], results: Iterable[Any]) -> None:
    """Hand results to their callers, waking each event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for job, result in zip(batch, results, strict=True):
        by_loop.setdefault(job.done.get_loop(), []).append((job.done, result))
    for loop, settled in by_loop.items():
        with suppress(RuntimeError):  # the loop was closed, and its callers with it
            loop.call_soon_threadsafe(_set_results, settled)


def _set_results(settled: Iterable[tuple[asyncio.Future[Any], Any]]) -> None:
    for done, result in settled:
        if not done.done():  # done: its caller was cancelled
            done.set_result(result)
