"""How large and how old a cache may become: the oldest entries go first, a few at a time.

Oldest first and not least recently used: to know what was used, every read would have to become a
write that waits for other processes. A policy in training also does not write again what it
wrote a thousand steps ago, so age and disuse are nearly the same order here.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

STEP_ROWS: Final = 4096
STEP_BYTES: Final = 32 * 2**20
_STEP_PAGES: Final = 1024
_LOW_WATER: Final = 0.95
_AGE_EVERY_S: Final = 60.0
_ROW_BYTES: Final = 200  # keys, indexes and names beside a reply and its verdict
SIZE: Final = f"(length(reply) + length(verdict) + {_ROW_BYTES})"
INCREMENTAL: Final = 2


class CacheLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a cache may hold; None is no limit.

    Args:
        max_bytes: of pages in use; the file follows, the log beside it is not counted.
        max_age_s: an older entry is neither served nor kept.
    """

    max_bytes: int | None = None
    max_age_s: float | None = None

    def expired(self, created: float, now_s: float) -> bool:
        """Whether an entry of Unix time `created` is too old at `now_s`.

        >>> CacheLimits(max_age_s=60).expired(0.0, 61.0), CacheLimits().expired(0.0, 1e9)
        (True, False)
        """
        return self.max_age_s is not None and created < now_s - self.max_age_s


class Dropped(NamedTuple):
    """What one step dropped; `newest` is the Unix time of the last entry, or 0 for none."""

    entries: int = 0
    size_bytes: int = 0
    newest: float = 0.0


class Trimmer:
    """Keeps one file within its limits, in short steps.

    Args:
        limits: see `CacheLimits`.
        wall: Unix time in seconds.
    """

    def __init__(self, limits: CacheLimits, *, wall: Callable[[], float] = time.time) -> None:
        self._limits = limits
        self._wall = wall
        self._next_age_s = 0.0
        self.evicted = 0

    def step(self, connection: sqlite3.Connection) -> bool:
        """Drop some of what is too much; returns whether there may be more.

        A file that is locked, full or damaged is skipped: reads and writes report that.
        """
        try:
            dropped = self._too_old(connection) or self._too_much(connection)
            self.evicted += dropped
            return dropped > 0 or self._too_long(connection)
        except sqlite3.Error:
            return False

    def _too_old(self, connection: sqlite3.Connection) -> int:
        age_s, now_s = self._limits.max_age_s, self._wall()
        if age_s is None or now_s < self._next_age_s:
            return 0
        dropped = drop(connection, "created < ?", (now_s - age_s,)).entries
        if dropped < STEP_ROWS:
            self._next_age_s = now_s + _AGE_EVERY_S
        return dropped

    def _too_much(self, connection: sqlite3.Connection) -> int:
        limit = self._limits.max_bytes
        if limit is None or used_bytes(connection) <= limit:
            return 0
        return drop(connection, max_bytes=int(limit * _LOW_WATER)).entries

    def _too_long(self, connection: sqlite3.Connection) -> bool:
        """Whether the file has free pages beyond the limit; gives some of them back."""
        limit = self._limits.max_bytes
        if limit is None or file_bytes(connection) <= limit:
            return False
        return release(connection)


def drop(
    connection: sqlite3.Connection,
    where: str = "1",
    values: tuple[object, ...] = (),
    *,
    max_bytes: int | None = None,
) -> Dropped:
    """Drop the oldest entries that `where` fits, in one transaction.

    At most `STEP_ROWS` of them; with `max_bytes` no more than bring the pages in use down to it,
    and at most `STEP_BYTES`.

    Args:
        connection: to the cache's file.
        where: an SQL condition of our own words, with ``?`` for each of `values`.
        values: that it compares with.
        max_bytes: of the pages in use; None: as many as one step may drop.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        # measured under the lock, or two processes would each drop what is too much
        room = STEP_BYTES if max_bytes is None else used_bytes(connection) - max_bytes
        rows, size_bytes, newest = _oldest(connection, where, values, min(room, STEP_BYTES))
        connection.executemany("DELETE FROM replies WHERE rowid = ?", rows)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return Dropped(len(rows), size_bytes, newest)


def _oldest(
    connection: sqlite3.Connection, where: str, values: tuple[object, ...], up_to_bytes: int
) -> tuple[list[tuple[int]], int, float]:
    rows: list[tuple[int]] = []
    size_bytes, newest = 0, 0.0
    found = connection.execute(
        f"SELECT rowid, {SIZE}, created FROM replies WHERE {where} ORDER BY created LIMIT ?",  # noqa: S608 - our own words
        (*values, STEP_ROWS if up_to_bytes > 0 else 0),
    )
    for rowid, row_bytes, created in found:
        rows.append((rowid,))
        size_bytes += row_bytes
        newest = created
        if size_bytes >= up_to_bytes:
            break
    found.close()
    return rows, size_bytes, newest


def release(connection: sqlite3.Connection) -> bool:
    """Give some free pages back to the disk; whether there are more.

    Files of before incremental vacuum keep theirs for new entries.
    """
    if pragma(connection, "auto_vacuum") != INCREMENTAL:
        return False
    # as a script: it yields a row without columns for each page, and execute() would stop at one
    connection.executescript(f"PRAGMA incremental_vacuum({_STEP_PAGES})")
    return pragma(connection, "freelist_count") > 0


def used_bytes(connection: sqlite3.Connection) -> int:
    """The pages that hold something."""
    pages = pragma(connection, "page_count") - pragma(connection, "freelist_count")
    return pages * pragma(connection, "page_size")


def file_bytes(connection: sqlite3.Connection) -> int:
    """All pages, the free ones included."""
    return pragma(connection, "page_count") * pragma(connection, "page_size")


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """The number that a pragma says."""
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
