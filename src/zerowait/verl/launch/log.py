"""The trainer's output in a file that its owner alone may read."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_ROOM: Final = re.compile(
    r"\[Errno (?:28|122|27)\].*|No space left on device.*|Disk quota exceeded.*|File too large.*"
    r"|PytorchStreamWriter failed writing file.*"  # torch's words for it, in a checkpoint
)
_ROOM: Final = 2**20


class Log:
    """A file for lines, each handed to the system at once.

    A line that finds no room is left out, and the next one that does says so: a full disk must not
    end a training whose checkpoints may still be saved after somebody made room.

    Args:
        path: the file; an earlier run's is replaced.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._no_room = ""
        # 0600: verl prints prompts and responses
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        os.fchmod(self._file, 0o600)
        self._left_out = 0
        self._why = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def write(self, line: str) -> None:
        """Append `line`, or count it as left out."""
        found = _NO_ROOM.search(line)
        if found:
            self._no_room = found[0].strip()
        gap = ""
        if self._left_out:
            gap = f"\nzerowait: {self._left_out} lines are missing here: {self._why}\n"
        rest = f"{gap}{line}".encode("utf-8", "replace")
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            self._left_out += 1
            self._why = error.strerror or str(error)
            if error.errno in _FULL and not self._no_room:
                self._no_room = f"{self._why}: {str(self._path)!r}"
        else:
            self._left_out = 0

    def no_room(self) -> str | None:
        """What could not be written because a disk or a quota is full; None: no sign of it.

        It may be a checkpoint, verl's or Ray's own files, or this log, which would have said so.
        """
        folder = self._path.parent
        disk = os.statvfs(folder)
        free = disk.f_bavail * disk.f_frsize
        if not self._no_room and free >= _ROOM:
            return None
        what = self._no_room or "No space left on device"
        return f"{what}; {folder} has {free / _ROOM:.0f} MiB free"
