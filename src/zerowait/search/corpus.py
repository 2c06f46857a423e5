"""A corpus on disk: one JSON document a line, read by its offset when it is needed."""

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

ReportProgress = Callable[[float], None]
"""Called with the share that is done, in [0, 1]."""


def no_progress(share: float) -> None:
    """Ignore the progress."""


class Corpus:
    r"""A JSONL file of ``{"id": ..., "contents": "Title\ntext"}``, as Search-R1 has it.

    A document is read on access; only the offset of each line is kept, 8 bytes a document. The
    file is not memory-mapped, since truncating a mapped file kills the process that reads it.

    Args:
        path: the file.
        offsets: the byte offset of each document, shape (documents,); None reads the file once
            to find them.
        progress: called with the share of the file that was read.

    Raises:
        DataError: the file does not exist or is empty, or a line is no document; names the line.
    """

    def __init__(
        self, path: Path, *, offsets: Any = None, progress: ReportProgress = no_progress
    ) -> None:
        if not path.is_file() or path.stat().st_size == 0:
            raise DataError(f"{path}: there is no such file, or it is empty")
        self.path = path
        self._file = path.open("rb", buffering=0)
        try:
            self._size = os.fstat(self._file.fileno()).st_size
            self.offsets = _line_offsets(path, self._size, progress) if offsets is None else offsets
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
        """Close the file. Idempotent."""
        self._file.close()

    def __len__(self) -> int:
        """The number of documents."""
        return len(self.offsets)

    def __getitem__(self, row: int) -> Passage:
        """The document at index `row`, counted from 0; blank lines do not count."""
        size = self.size(row)
        line = os.pread(self._file.fileno(), size, int(self.offsets[row]))
        if len(line) != size:
            raise DataError(f"{self.path}, document {row + 1}: the file was truncated later")
        return _parse_document(self.path, row, line)

    def size(self, row: int) -> int:
        """The number of bytes of the document in the file."""
        end = self.offsets[row + 1] if row + 1 < len(self.offsets) else self._size
        return int(end) - int(self.offsets[row])

    def __iter__(self) -> Iterator[Passage]:
        """Every document, in order."""
        return (self[row] for row in range(len(self)))


def _line_offsets(path: Path, size: int, progress: ReportProgress) -> Any:
    """The byte offset of each document as int64, shape (documents,); checks every line."""
    import numpy as np

    offsets = array("q")
    at = 0
    with path.open("rb") as lines:
        for line in lines:
            if line.strip():
                _parse_document(path, len(offsets), line)
                offsets.append(at)
            at += len(line)
            if len(offsets) % 4096 == 0:
                progress(min(1.0, at / size))
    if not offsets:
        raise DataError(f"{path}: has no documents")
    progress(1.0)
    return np.array(offsets, dtype=np.int64)


def _parse_document(path: Path, row: int, line: bytes) -> Passage:
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
