"""The report's documents of a run, kept until it has grown, and beyond in a file."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from zerowait.observe.page.data import VIEWS, open_run, point, view_document
from zerowait.record.index import RecordIndex

_SUFFIX: Final = ".views.json"
_WORTH_SAVING_S: Final = 0.5


class _Kept(msgspec.Struct):
    """The file: the last documents of a run, by view.

    Args:
        began: the first sample's name and time, by which another run in the folder is told apart.
        versions: the state of the run that each is of.
    """

    began: str = ""
    versions: dict[str, str] = {}
    documents: dict[str, msgspec.Raw] = {}


class RunDocuments:
    """The documents of one run; used by one thread.

    The summaries of a million judgements take many seconds. So the last ones are kept in a file
    beside the run's index, and a page shows those until newer ones are made.

    Args:
        name: of the run.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._last: _Kept | None = None
        self._unsaved_s = 0.0
        self._points: dict[int, bytes] = {}
        self._version_of_points = ""

    def view(self, index: RecordIndex, version: str, name: str) -> bytes:
        """The document ``name`` as JSON; made anew where the last one is of another state.

        Raises:
            DataError: there is no such view.
        """
        kept = self._kept(index)
        if kept.versions.get(name) != version:
            began = time.monotonic()
            made = msgspec.json.encode(view_document(open_run(index, self._name), name))
            kept.documents[name], kept.versions[name] = msgspec.Raw(made), version
            self._unsaved_s += time.monotonic() - began
            if self._unsaved_s > _WORTH_SAVING_S:
                self._save(index, kept)
        return bytes(kept.documents[name])

    def last(self, index: RecordIndex) -> bytes:
        """The last ``documents`` that were made and their ``versions``, as JSON."""
        return msgspec.json.encode(self._kept(index))

    def missing(self, index: RecordIndex) -> list[str]:
        """The views of which there is no document yet, not even of an earlier state of the run."""
        made = self._kept(index).documents
        return [name for name in VIEWS if name not in made]

    def point(self, index: RecordIndex, version: str, at: int) -> bytes:
        """What the report shows of one step, as JSON.

        Raises:
            DataError: the run has no such point.
        """
        if version != self._version_of_points:
            self._version_of_points = version
            self._points.clear()
        if at not in self._points:
            self._points[at] = msgspec.json.encode(point(open_run(index, self._name), at))
        return self._points[at]

    def _kept(self, index: RecordIndex) -> _Kept:
        """The last documents; those of the file at first."""
        began = _began(index)
        if self._last is None:
            self._last = _Kept()
            with suppress(OSError, msgspec.MsgspecError):
                self._last = msgspec.json.decode(_file(index).read_bytes(), type=_Kept)
        if self._last.began != began:
            self._last = _Kept(began, {}, {})
        return self._last

    def _save(self, index: RecordIndex, kept: _Kept) -> None:
        self._unsaved_s = 0.0
        file = _file(index)
        written = file.with_name(f"{file.name}.{os.getpid()}")
        with suppress(OSError):  # it only saves time
            written.touch(mode=0o600)
            written.write_bytes(msgspec.json.encode(kept))
            written.replace(file)


def _file(index: RecordIndex) -> Path:
    return index.file.with_suffix(_SUFFIX)


def _began(index: RecordIndex) -> str:
    first = index.execute("SELECT uid, submitted_at FROM rewards ORDER BY row LIMIT 1").fetchone()
    return "" if first is None else f"{first['uid']} {first['submitted_at']}"
