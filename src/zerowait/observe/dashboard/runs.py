"""The runs that a dashboard shows: each one's index, kept up to date while a page is open."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Self, TypeVar

import msgspec

from zerowait.errors import DataError
from zerowait.observe.dashboard.documents import RunDocuments
from zerowait.record import (
    EVENTS,
    JUDGEMENTS,
    OPINIONS,
    REWARDS,
    STATS,
    AppendOnlyFile,
    OpinionLine,
    RecordIndex,
    damage_in,
    open_index,
    refresh,
)

T = TypeVar("T")

_REFRESH_EVERY_S: Final = 1.0
_MOST_NAMED: Final = 5
_FILES: Final = (REWARDS, JUDGEMENTS, STATS, EVENTS)

_log = logging.getLogger(__name__)


class NotYetError(Exception):
    """The run cannot be read now; the message says why, and it may be possible later."""


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a page knows of a run before it reads it.

    Args:
        name: of its folder.
        state: ``ready``, or ``waiting`` for the run to begin, ``reading`` what is recorded so far,
            or ``failed``.
        why: it is not ready, in words.
        version: changes when the run has grown.
        samples: rewards recorded.
    """

    name: str
    state: str
    why: str = ""
    version: str = ""
    samples: int = 0


def run_names(folders: Sequence[Path]) -> list[str]:
    """The names of these folders, with as many of their parents as it takes to tell them apart.

    >>> run_names([Path("runs/seed-1/run"), Path("runs/seed-2/run")])
    ['seed-1/run', 'seed-2/run']
    >>> run_names([Path("runs/a"), Path("runs/b")])
    ['a', 'b']
    """
    parts = [folder.absolute().parts for folder in folders]
    for length in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(set(parts)):
            return names
    return [str(folder) for folder in folders]


class WatchedRun:
    """One run, which may not exist yet; used with ``async with``.

    Its index is brought up to date in a thread of its own, at most once a second, and only while
    its status is asked for. Two other threads read, so that a long summary delays no filter.

    Args:
        folder: of the run.
        name: of the run, for headings.

    Raises:
        DataError: `folder` has files, and none of them is a record's.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        _check_folder(folder)
        self._status = RunStatus(name=name, state="reading", why="opening")
        self._asked = asyncio.Event()
        self._updating = _Worker("zerowait-dashboard-update")
        self._samples = _Reader(folder, "zerowait-dashboard-samples")
        self._views = _Reader(folder, "zerowait-dashboard-views")
        self._updated = _Opened(folder)
        self._documents = RunDocuments(self._status.name)
        self._watching: asyncio.Task[None] | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._warned = False

    async def __aenter__(self) -> Self:
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = {task for task in (self._watching, self._preparing) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._updating.close()
        await self._samples.aclose()
        await self._views.aclose()

    def status(self) -> RunStatus:
        """What is known now; asks for the next update."""
        self._asked.set()
        return self._status

    async def read(self, query: Callable[[RecordIndex], T], *, long: bool = False) -> T:
        """What `query` returns of the run's index.

        Args:
            query: called in a thread.
            long: it may take a second or more.

        Raises:
            NotYetError: the index is not ready.
            DataError: it cannot be read, or what `query` raises.
        """
        if self._status.state != "ready":
            raise NotYetError(self._status.why)
        reader = self._views if long else self._samples
        try:
            return await reader.read(query)
        except (OSError, sqlite3.Error) as error:
            raise DataError(f"the index of {self.folder} cannot be read: {error}") from None

    async def view(self, name: str) -> bytes:
        """The report's document ``name``, as JSON; made once for each state of the run.

        Raises:
            NotYetError: the index is not ready.
            DataError: there is no such view.
        """
        version = self._status.version
        return await self.read(lambda ix: self._documents.view(ix, version, name), long=True)

    async def point(self, at: int) -> bytes:
        """What the report shows of one step, as JSON; likewise.

        Raises:
            NotYetError: the index is not ready.
            DataError: the run has no such point.
        """
        version = self._status.version
        return await self.read(lambda ix: self._documents.point(ix, version, at), long=True)

    async def last_views(self) -> bytes:
        """The documents that were made last, of whichever state of the run, with its version.

        Raises:
            NotYetError: the index is not ready.
        """
        return await self.read(self._documents.last, long=True)

    async def rate(self, row: int, *, up: bool | None, note: str, who: str) -> None:
        """Append what a person thinks of a sample to ``opinions.jsonl``, and read it back.

        Raises:
            NotYetError: the index is not ready.
            DataError: the run has no such row, or the file cannot be written.
        """

        def append(index: RecordIndex) -> None:
            found = index.execute("SELECT uid FROM rewards WHERE row = ?", (row,)).fetchone()
            if found is None:
                raise DataError(f"the run has no row {row}")
            line = OpinionLine(
                row=row, uid=found["uid"] or "", up=up, note=note, who=who, at=time.time()
            )
            try:
                file = AppendOnlyFile(self.folder / OPINIONS)
                try:
                    file.write(msgspec.json.encode(line))
                finally:
                    file.close()
            except OSError as error:
                where = self.folder / OPINIONS
                raise DataError(f"{where} cannot be written to: {error.strerror}") from None

        await self.read(append)
        await self._updating.run(self._update)

    async def _watch(self) -> None:
        """Bring the index up to date after each request for the status, until cancelled."""
        while True:
            await self._updating.run(self._update)
            if self._preparing is None and self._status.state == "ready":
                self._preparing = asyncio.create_task(self._prepare())
            await asyncio.sleep(_REFRESH_EVERY_S)
            await self._asked.wait()
            self._asked.clear()

    async def _prepare(self) -> None:
        """Make the views that were never made, so that they are there when the page is opened."""
        with suppress(NotYetError, DataError):  # the page shows the error when it asks for the view
            for name in await self.read(self._documents.missing, long=True):
                await self.view(name)

    def _update(self) -> None:
        """Read what was recorded since; in the updating thread."""
        try:
            if not has_record(self.folder):
                self._tell(state="waiting", why=f"waiting for {self.folder} to have a record")
                return
            if self._status.state != "ready":
                self._tell(state="reading", why="reading the record for the first time")
            refresh(self._updated())
            version, samples = _extent(self._updated())
            self._warn_of(damage_in(self._updated()))
            self._tell(state="ready", why="", version=version, samples=samples)
        except DataError as error:
            self._tell(state="failed", why=str(error))
        except (OSError, sqlite3.Error) as error:
            why = f"the index of {self.folder} cannot be made: {error}"
            self._tell(state="failed", why=why)

    def _warn_of(self, damage: str) -> None:
        if damage and not self._warned:
            self._warned = True
            _log.warning("%s", damage)

    def _tell(self, **changes: Any) -> None:
        self._status = msgspec.structs.replace(self._status, **changes)


def has_record(folder: Path) -> bool:
    """Whether the folder has a file of a record."""
    return any((folder / name).exists() for name in _FILES)


def _check_folder(folder: Path) -> None:
    """Raise a DataError for a folder in which no run will appear: it holds something else."""
    if not folder.exists() or has_record(folder):
        return
    if not folder.is_dir():
        raise DataError(f"{folder} is a file: give the folder of a run")
    inside = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    if not inside:
        return
    runs = [str(path) for path in inside if path.is_dir() and has_record(path)]
    hint = ""
    if runs:
        more = f" and {len(runs) - _MOST_NAMED} more" if len(runs) > _MOST_NAMED else ""
        hint = f"; runs in it: {', '.join(runs[:_MOST_NAMED])}{more}"
    raise DataError(f"{folder} has no record: no {REWARDS} is there{hint}")


def _extent(index: sqlite3.Connection) -> tuple[str, int]:
    """A text that changes with every new line, and the number of rewards."""
    query = ", ".join(
        f"(SELECT max(rowid) FROM {table})"
        for table in ("rewards", "judgements", "stats", "phases", "events", "damaged")
    )
    # an opinion that takes the place of another one may get its rowid
    query += ", (SELECT count(*) FROM opinions), (SELECT max(at) FROM opinions)"
    found = index.execute(f"SELECT {query}").fetchone()
    return "-".join(str(number or 0) for number in found), found[0] or 0


class _Worker:
    """A thread that does one piece of work after the other.

    It is a daemon: the first reading of a large record takes minutes, and what it has read by then
    is kept, so that it must not keep the command from ending.
    """

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns, or raises, in the thread."""
        future: Future[T] = Future()
        self._work.put((future, work))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """End the thread after the work that it has begun."""
        self._work.put(None)

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            future, work = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                future.set_exception(error)


class _Opened:
    """A connection to a run's index, opened when it is first needed; used by one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._index: RecordIndex | None = None
        self._inode = 0

    def __call__(self) -> RecordIndex:
        """The connection; another one where the index was made anew in another file."""
        if self._index is not None and self._inode != _inode(self._index.file):
            self.close()
        if self._index is None:
            self._index = open_index(self._folder)
            self._inode = _inode(self._index.file)
        return self._index

    def interrupt(self) -> None:
        """End the query that runs in the thread."""
        if self._index is not None:
            self._index.interrupt()

    def close(self) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None


def _inode(file: Path) -> int:
    try:
        return file.stat().st_ino
    except FileNotFoundError:
        return 0


class _Reader:
    """A thread that reads the run's index over a connection of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self._worker = _Worker(name)
        self._opened = _Opened(folder)

    async def read(self, query: Callable[[RecordIndex], T]) -> T:
        return await self._worker.run(lambda: query(self._opened()))

    async def aclose(self) -> None:
        self._opened.interrupt()
        await self._worker.run(self._opened.close)
        self._worker.close()
