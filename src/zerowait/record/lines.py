"""Files of JSON lines: appended to by several processes, read without a killed one's last half."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from zerowait.errors import DataError

INCOMPLETE: Final = b"\x18\n"
"""Ends a line of which only a part was written: the control character "cancel", which JSON text
never holds unescaped."""

_HALF_OF_PAIR: Final = re.compile("[\ud800-\udfff]")

PART_BYTES: Final = 256 * 2**20
_MOST_PARTS: Final = 1024  # of one `writev`, by POSIX


class AppendOnlyFile:
    """A file of lines, to which several processes may append.

    On a full disk a part of a line may be written. The next `write`, by any process, first ends
    that part with a mark, by which readers skip it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # readable too, to see how it ends
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        self._written_to = 0  # where our last whole line ends

    def write(self, line: bytes) -> None:
        """Append a line; several, if there are newlines between them.

        Raises:
            OSError: not all of it was written; names the file.
        """
        self.append([line])

    def append(self, lines: Sequence[bytes]) -> int:
        """Append lines with one write.

        Args:
            lines: each without its newline.

        Returns:
            The size of the file in bytes, before another process wrote more.

        Raises:
            OSError: not all of them were written; names the file.
        """
        size = os.lseek(self._file, 0, os.SEEK_END)
        # after our own last line nothing is incomplete; after that of another process it may be
        cut = size not in (0, self._written_to) and os.pread(self._file, 1, size - 1) != b"\n"
        parts = [INCOMPLETE] if cut else []
        for line in lines:
            parts += line, b"\n"
        if len(parts) > _MOST_PARTS:
            parts = [b"".join(parts)]
        size_bytes = sum(map(len, parts))
        self._written_to = 0
        try:
            written = os.writev(self._file, parts)  # copies no line, as to join them would
            if written < size_bytes:
                left = memoryview(b"".join(parts))[written:]
                while left:
                    left = left[os.write(self._file, left) :]
        except OSError as error:
            error.filename = str(self._path)
            raise
        self._written_to = size + size_bytes
        return self._written_to

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class RotatingFile:
    """Lines in a file, and, where it grows beyond a size, in numbered parts after it.

    Several processes may append; each goes on to the latest part that there is.

    Args:
        folder: of the record.
        name: of the first part; see `parts_of`.
        part_bytes: a part of this size is not appended to any more.

    Raises:
        OSError: the file cannot be written to.
    """

    def __init__(self, folder: Path, name: str, *, part_bytes: int = PART_BYTES) -> None:
        self._folder = folder
        self._name = name
        self._part_bytes = part_bytes
        self._file = AppendOnlyFile(self._latest())

    def append(self, lines: Sequence[bytes]) -> None:
        """Append lines, each without its newline.

        Raises:
            OSError: not all of them were written; names the file.
        """
        size = self._file.append(lines)
        if size >= self._part_bytes:
            following = AppendOnlyFile(self._latest())
            self._file.close()
            self._file = following

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _latest(self) -> Path:
        """The part to append to: the last one, or a new one after it if that is full."""
        parts = parts_of(self._folder, self._name)
        if not parts:
            return self._folder / self._name
        if parts[-1].stat().st_size < self._part_bytes:
            return parts[-1]
        first = self._folder / self._name
        digits = parts[-1].name.removeprefix(f"{first.stem}.").removesuffix(first.suffix)
        number = int(digits) if parts[-1] != first else 1
        return self._folder / f"{first.stem}.{number + 1:05}{first.suffix}"


def parts_of(folder: Path, name: str) -> list[Path]:
    """The files of a record of this kind, the oldest first.

    >>> [part.name for part in parts_of(Path("nowhere"), "judgements.jsonl")]
    []

    Args:
        folder: of the record.
        name: of the first part, ``x.jsonl``; others are ``x.00002.jsonl``, ...
    """
    first = folder / name
    numbered = re.compile(rf"{re.escape(first.stem)}\.[0-9]{{5,}}{re.escape(first.suffix)}")
    others = [path for path in folder.glob(f"{first.stem}.*") if numbered.fullmatch(path.name)]
    others.sort(key=lambda path: (len(path.name), path.name))
    return [first, *others] if first.exists() else others


def read_lines(path: Path, kind: Any) -> Iterator[tuple[int, Any]]:
    """The number and the decoded value of each complete line."""
    decoder = msgspec.json.Decoder(kind)
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    return  # the last line of a process that was killed while writing it
                if line.endswith(INCOMPLETE):
                    continue  # the caller got an OSError for this reward
                try:
                    yield number, decoder.decode(line)
                except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                    raise DataError(f"{path}:{number}: is damaged: {error}") from None
    except FileNotFoundError:
        raise DataError(f"{path} does not exist: nothing was recorded there") from None


def encoded_line(record: msgspec.Struct) -> bytes:
    """A record as JSON; halves of surrogate pairs, which no file can hold, become U+FFFD.

    Judges read them so too, and a replay finds a judgement by what the judge read.
    """
    try:
        return _encode(record)
    except UnicodeEncodeError:
        return _encode(_writable(msgspec.to_builtins(record, enc_hook=to_builtin)))


def _writable(value: Any) -> Any:
    match value:
        case str():
            return _HALF_OF_PAIR.sub("\ufffd", value)
        case dict():
            return {_writable(key): _writable(each) for key, each in value.items()}
        case list() | tuple():
            return [_writable(each) for each in value]
        case _:
            return value


def to_builtin(value: Any) -> Any:
    """A value of numpy as Python's own, which data sets may hold; anything else as text."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)


_encode: Final = msgspec.json.Encoder(enc_hook=to_builtin).encode
