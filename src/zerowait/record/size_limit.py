"""The size of a record's files, and what ``record.max_bytes`` still allows."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_MEASURED_EVERY_S: Final = 10.0
_TEXTS_SHARE: Final = 0.9


class SizeLimit:
    """How large the files of a record are, and what is recorded at that size.

    Files that other processes write count. From nine tenths of `most_bytes` on no more texts are
    kept, and from `most_bytes` on no more judgements. Rewards are always recorded.

    Args:
        folder: of the record.
        most_bytes: its limit, in bytes.
        clock: seconds.
    """

    def __init__(
        self, folder: Path, most_bytes: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.most_bytes = most_bytes
        self._folder = folder
        self._clock = clock
        self._size_bytes = 0
        self._measured_s = -_MEASURED_EVERY_S

    @property
    def keeps_texts(self) -> bool:
        """Whether prompts and replies are still recorded."""
        return self._size_bytes < _TEXTS_SHARE * self.most_bytes

    @property
    def is_full(self) -> bool:
        """Whether no more judgements are recorded."""
        return self._size_bytes >= self.most_bytes

    def add(self, size_bytes: int) -> None:
        """Take note that so many bytes were written."""
        self._size_bytes += size_bytes

    def measure(self) -> None:
        """Measure the files, unless that was done within the last 10 s."""
        if self._clock() - self._measured_s < _MEASURED_EVERY_S:
            return
        self._measured_s = self._clock()
        files = [*self._folder.glob("*.jsonl"), *self._folder.glob("pictures/*")]
        self._size_bytes = sum(_size_bytes(path) for path in files)


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # it was renamed meanwhile
        return 0
