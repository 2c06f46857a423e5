"""Documents on disk: one JSON object a line, read where they lie."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from zerowait.errors import DataError
from zerowait.search.passages import Passage

Progress = Callable[[float], None]
"""Called with the share that is done, in [0, 1]."""


def silent(share: float) -> None:
    """Progress that nobody watches."""


class Corpus:
    r"""A JSONL file of ``{"id": ..., "contents": "Title\ntext"}``, as Search-R1 has it.

    A document is read when it is asked for; only where each line starts is kept, 8 bytes a
    document. The file is not mapped, since whoever cuts a mapped file short ends the process.

    Args:
        path: the file.
        offsets: where each document starts; found by reading the file once when None.
        progress: of that reading.

    Raises:
        DataError: the file is not there, or empty, or a line is not a document; names the line.
    """

    def __init__(self, path: Path, *, offsets: Any = None, progress: Progress = silent) -> None:
        if not path.is_file() or path.stat().st_size == 0:
            raise DataError(f"{path}: there is no such file, or it is empty")
        self.path = path
        self._file = path.open("rb", buffering=0)
        try:
            self._size = os.fstat(self._file.fileno()).st_size
            self.offsets = _starts(path, self._size, progress) if offsets is None else offsets
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the file go. Idempotent."""
        self._file.close()

    def __len__(self) -> int:
        """How many documents there are."""
        return len(self.offsets)

    def __getitem__(self, row: int) -> Passage:
        """The document in line `row` of those that are not blank, the first being 0."""
        size = self.size(row)
        line = os.pread(self._file.fileno(), size, int(self.offsets[row]))
        if len(line) != size:
            raise DataError(f"{self.path}, document {row + 1}: the file was cut short since")
        return _document(self.path, row, line)

    def size(self, row: int) -> int:
        """How many bytes the document takes in the file."""
        end = self.offsets[row + 1] if row + 1 < len(self.offsets) else self._size
        return int(end) - int(self.offsets[row])

    def __iter__(self) -> Iterator[Passage]:
        """Every document, in order."""
        return (self[row] for row in range(len(self)))


def _starts(path: Path, size: int, progress: Progress) -> Any:
    import numpy as np

    starts = array("q")
    at = 0
    with path.open("rb") as lines:
        for line in lines:
            if line.strip():
                _document(path, len(starts), line)
                starts.append(at)
            at += len(line)
            if len(starts) % 4096 == 0:
                progress(min(1.0, at / size))
    if not starts:
        raise DataError(f"{path}: has no documents")
    progress(1.0)
    return np.array(starts, dtype=np.int64)


def _document(path: Path, row: int, line: bytes) -> Passage:
    try:
        fields = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path}, document {row + 1}: is not JSON ({error})") from None
    contents = fields.get("contents") if isinstance(fields, dict) else None
    if not isinstance(contents, str) or not contents.strip():
        raise DataError(
            f"{path}, document {row + 1}: has no text under 'contents': write each document as "
            '{"id": "...", "contents": "Title\\ntext"}'
        )
    return Passage(contents, str(fields.get("id", row)))
