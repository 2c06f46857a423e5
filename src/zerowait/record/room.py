"""The size of a record, and what its limit still allows."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_MEASURED_EVERY_S: Final = 10.0
_TEXTS_SHARE: Final = 0.9


class Room:
    """How large the files of a record are, those that other processes write included.

    At nine tenths of `most_bytes` there is no more room for texts, at all of it none for
    judgements. Rewards are always recorded.

    Args:
        folder: of the record.
        most_bytes: its limit.
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
        """Whether there is room for prompts and replies."""
        return self._size_bytes < _TEXTS_SHARE * self.most_bytes

    @property
    def is_full(self) -> bool:
        """Whether there is no more room for judgements."""
        return self._size_bytes >= self.most_bytes

    def add(self, size_bytes: int) -> None:
        """So many bytes were written."""
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
