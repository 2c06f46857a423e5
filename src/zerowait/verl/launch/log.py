"""The log file of verl's trainer, readable by its owner only, and what a full disk does to it."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from types import TracebackType
from typing import Final, Self

LOG: Final = "train.log"
_DISK_FULL_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DISK_FULL_TEXT: Final = re.compile(
    r"\[Errno (?:28|122|27)\].*|No space left on device.*|Disk quota exceeded.*|File too large.*"
    r"|PytorchStreamWriter failed writing file.*"  # torch's message when a checkpoint fails
)
_ERROR: Final = re.compile(
    r"^((?:\w+\.)*\w*(?:Error|Exception): .+)$(?:\n\s+class_name: (.+))?", re.MULTILINE
)
"""The end of a traceback of the trainer's own process (lines of Ray's actors have a prefix), and
the class of an actor that died."""
_OWN: Final = "zerowait.errors."
_MOST_ERROR_CHARS: Final = 500
_MIB: Final = 2**20


class TrainerLog:
    """A log file of lines, each written to the system at once.

    A line that cannot be written is left out, and the next line that can be says how many are
    missing: a full disk must not end a training whose checkpoints may still be saved after space
    was freed.

    Args:
        path: the file; the log of an earlier run is replaced.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # 0600: verl prints prompts and responses
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        os.fchmod(self._file, 0o600)
        self._missing_lines = 0
        self._write_error = ""
        self._disk_full = ""

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
        """Append `line`; count it as missing if it cannot be written."""
        found = _DISK_FULL_TEXT.search(line)
        if found:
            self._disk_full = found[0].strip()
        gap = ""
        if self._missing_lines:
            gap = f"\nzerowait: {self._missing_lines} lines are missing here: {self._write_error}\n"
        rest = f"{gap}{line}".encode("utf-8", "replace")
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            self._missing_lines += 1
            self._write_error = error.strerror or str(error)
            if error.errno in _DISK_FULL_ERRNOS and not self._disk_full:
                self._disk_full = f"{self._write_error}: {str(self._path)!r}"
        else:
            self._missing_lines = 0

    def disk_full(self) -> str | None:
        """What could not be written because a disk or a quota is full; None without a sign of it.

        That may be a checkpoint, a file of verl's or Ray's, or this log.
        """
        folder = self._path.parent
        disk = os.statvfs(folder)
        free_bytes = disk.f_bavail * disk.f_frsize
        if not self._disk_full and free_bytes >= _MIB:
            return None
        what = self._disk_full or "No space left on device"
        return f"{what}; {folder} has {free_bytes / _MIB:.0f} MiB free"


def tail(folder: Path, lines: int = 40) -> str:
    """The last `lines` lines of the trainer's log in `folder`; empty without a log."""
    try:
        text = (folder / LOG).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def last_error(folder: Path) -> str:
    """The error that ended the training, by the trainer's log in `folder`; empty without one.

    Of an error of zerowait's only the sentence; of others with the name of the class.
    """
    found = _ERROR.findall(tail(folder, 200))
    if not found:
        return ""
    error, actor = (part.strip() for part in found[-1])
    if error.startswith(_OWN):
        error = error.partition(": ")[2]
    if actor:
        error += f" ({actor.rpartition('.')[2]})"
    return error if len(error) <= _MOST_ERROR_CHARS else f"{error[:_MOST_ERROR_CHARS]}…"
