"""The trainer's output in a file that its owner alone may read."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self


class Log:
    """A file for lines, each handed to the system at once.

    A line that finds no room is left out, and the next one that does says so: a full disk must not
    end a training whose checkpoints may still be saved after somebody made room.

    Args:
        path: the file; an earlier run's is replaced.
    """

    def __init__(self, path: Path) -> None:
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
        else:
            self._left_out = 0
