"""Maintenance of a cache file: statistics, pruning, export and import.

All of it works in short transactions on a connection of its own, so that runs may go on using the
file meanwhile.
"""

from __future__ import annotations

import base64
import math
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from zerowait.cache.limits import SIZE, Dropped, drop, file_bytes, release, used_bytes
from zerowait.cache.sqlite_file import open_database
from zerowait.cache.store import StoreError
from zerowait.errors import ConfigError, DataError
from zerowait.types import Score

_BUSY_S: Final = 30.0
_PAUSE_S: Final = 0.005  # between transactions, so that waiting writers get their turn
_AT_ONCE: Final = 256
_COLUMNS: Final = "key, reply, verdict, judge, model, fingerprint, created"
_IMPORT: Final = f"""
    INSERT INTO replies ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET reply = excluded.reply, verdict = excluded.verdict,
        judge = excluded.judge, model = excluded.model, fingerprint = excluded.fingerprint,
        created = excluded.created
    WHERE excluded.created > replies.created
"""  # noqa: S608 - constants


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Selects entries: all given conditions must hold.

    Args:
        judge: the judge's name in the configuration that asked.
        model: the model that the server says it served.
        before: Unix time; older entries.
    """

    judge: str | None = None
    model: str | None = None
    before: float | None = None

    def where(self) -> tuple[str, tuple[object, ...]]:
        """The condition in SQL, and its values."""
        conditions = {"judge = ?": self.judge, "model = ?": self.model, "created < ?": self.before}
        given = {text: value for text, value in conditions.items() if value is not None}
        return " AND ".join(given) or "1", tuple(given.values())


class Share(NamedTuple):
    """What a cache holds of one judge and model; times are Unix times."""

    judge: str
    model: str
    entries: int
    size_bytes: int
    oldest: float
    newest: float


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What a cache file holds: `used_bytes` of its `file_bytes`, by judge and model."""

    shares: list[Share]
    file_bytes: int
    used_bytes: int

    @property
    def entries(self) -> int:
        """How many replies there are."""
        return sum(share.entries for share in self.shares)


class ExportedLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry in an export; the reply is text unless its bytes are no UTF-8."""

    key: str
    judge: str
    model: str
    fingerprint: str
    created: float
    verdict: Score
    reply: str | None = None
    reply_base64: str | None = None


_LINES: Final = msgspec.json.Decoder(ExportedLine)
_VERDICTS: Final = msgspec.json.Decoder(Score)


@contextmanager
def opened(path: Path, *, make: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection to the cache at `path`.

    Raises:
        ConfigError: there is none and `make` is False, or it is not a cache that this version can
            read.
        StoreError: the file failed while it was used.
    """
    if not make and not path.exists():
        raise ConfigError(
            f"there is no cache at {path}; name its file, or the reward.yaml that names it"
        )
    with closing(open_database(path, busy_timeout_s=_BUSY_S)) as connection:
        try:
            yield connection
        except sqlite3.Error as error:
            raise StoreError(f"the cache {path} failed ({error})") from error


def contents(connection: sqlite3.Connection) -> Contents:
    """What the file holds, the judge with most bytes first."""
    rows = connection.execute(
        f"SELECT judge, model, count(*), sum({SIZE}), min(created), max(created) FROM replies "  # noqa: S608 - constants
        "GROUP BY judge, model ORDER BY 4 DESC"
    )
    return Contents(
        shares=[Share(*row) for row in rows],
        file_bytes=file_bytes(connection),
        used_bytes=used_bytes(connection),
    )


def count(connection: sqlite3.Connection, selection: Selection) -> int:
    """The number of selected entries."""
    where, values = selection.where()
    (entries,) = connection.execute(
        f"SELECT count(*) FROM replies WHERE {where}",  # noqa: S608 - our own words
        values,
    ).fetchone()
    return int(entries)


def prune(
    connection: sqlite3.Connection,
    selection: Selection,
    *,
    max_bytes: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[int, int]:
    """Drop the selected entries, oldest first; returns their number and their bytes.

    Args:
        connection: to the cache.
        selection: which may be dropped.
        max_bytes: drop only as many as bring the pages in use down to this.
        progress: called with the number of entries dropped by each step.
    """
    where, values = selection.where()
    entries, size_bytes = 0, 0
    step = Dropped(newest=-math.inf)
    while True:
        # from where the last step ended: what must stay is not looked at again by every step
        step = drop(
            connection,
            f"created >= ? AND {where}",
            (step.newest, *values),
            max_bytes=max_bytes,
        )
        if step.entries == 0:
            break
        entries += step.entries
        size_bytes += step.size_bytes
        if progress is not None:
            progress(step.entries)
        time.sleep(_PAUSE_S)
    while release(connection):
        time.sleep(_PAUSE_S)
    return entries, size_bytes


def export_lines(
    connection: sqlite3.Connection,
    selection: Selection = Selection(),  # noqa: B008 - frozen
) -> Iterator[bytes]:
    """One line of JSON for each selected entry, in the order in which they were first kept.

    An entry whose verdict cannot be read is left out. Entries that come meanwhile are included.
    """
    where, values = selection.where()
    last = 0
    while True:
        # page by page: one long read would keep the log from being folded back into the file
        rows = connection.execute(
            f"SELECT rowid, {_COLUMNS} FROM replies WHERE rowid > ? AND {where} "  # noqa: S608 - our own words
            "ORDER BY rowid LIMIT ?",
            (last, *values, _AT_ONCE),
        ).fetchall()
        for row in rows:
            line = _line(*row[1:])
            if line is not None:
                yield line
        if len(rows) < _AT_ONCE:
            return
        last = rows[-1][0]


def import_lines(
    connection: sqlite3.Connection,
    lines: Iterable[bytes],
    *,
    name: str,
    progress: Callable[[int], None] | None = None,
) -> tuple[int, int]:
    """Keep the entries of an export, where there is no newer one; how many were kept, and not.

    Args:
        connection: to the cache.
        lines: as `export_lines` wrote them; blank ones are skipped.
        name: what errors call them.
        progress: called with the number of bytes read by each step.

    Raises:
        DataError: a line is no entry with a verdict. The whole batches before it stay imported.
    """
    kept = passed = 0
    numbered = enumerate(lines, start=1)
    while batch := list(islice(numbered, _AT_ONCE)):
        rows = [_row(text, f"{name}:{at}") for at, text in batch if text.strip()]
        connection.execute("BEGIN IMMEDIATE")
        try:
            before = connection.total_changes
            connection.executemany(_IMPORT, rows)
            changed = connection.total_changes - before
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        kept += changed
        passed += len(rows) - changed
        if progress is not None:
            progress(sum(len(text) for _, text in batch))
    return kept, passed


def _line(
    key: bytes, reply: bytes, verdict: bytes, judge: str, model: str, *rest: object
) -> bytes | None:
    fingerprint, created = rest
    try:
        score = _VERDICTS.decode(verdict)
        name = key.decode()
    except ValueError:  # msgspec's and Unicode's errors are such
        return None
    try:
        text, encoded = reply.decode(), None
    except UnicodeDecodeError:
        text, encoded = None, base64.b64encode(reply).decode()
    return msgspec.json.encode(
        ExportedLine(
            key=name,
            judge=judge,
            model=model,
            fingerprint=str(fingerprint),
            created=float(str(created)),
            verdict=score,
            reply=text,
            reply_base64=encoded,
        )
    )


def _row(text: bytes, where: str) -> tuple[object, ...]:
    try:
        line = _LINES.decode(text)
        reply = _reply(line)
        if line.created < 0:
            raise ValueError("created is no Unix time")  # noqa: TRY301 - reported like any other
    except ValueError as error:
        raise DataError(f"{where}: is no entry of a cache: {error}") from None
    # a time to come would never grow old
    created = min(line.created, time.time())
    verdict = msgspec.json.encode(line.verdict)
    names = (line.judge, line.model, line.fingerprint)
    return (line.key.encode(), reply, verdict, *names, created)


def _reply(line: ExportedLine) -> bytes:
    if line.reply is not None:
        return line.reply.encode()
    if line.reply_base64 is None:
        raise ValueError("it has neither reply nor reply_base64")
    return base64.b64decode(line.reply_base64, validate=True)
