"""Files of JSON lines: appended to by several processes, read without a killed one's last half."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from zerowait.errors import DataError

INCOMPLETE: Final = b"\x18\n"
"""Ends a line of which only a part was written: the control character "cancel", which JSON text
never holds unescaped."""

_HALF_OF_PAIR: Final = re.compile("[\ud800-\udfff]")

PART_BYTES: Final = 256 * 2**20
DAMAGED_SHOWN: Final = 3
"""How many damaged lines are named; the others are counted."""

_log = logging.getLogger(__name__)


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
        self.append(line + b"\n")

    def append(self, lines: bytes) -> int:
        """Append lines with one write.

        Args:
            lines: each with its newline.

        Returns:
            The size of the file in bytes, before another process wrote more.

        Raises:
            OSError: not all of them were written; names the file.
        """
        size = os.lseek(self._file, 0, os.SEEK_END)
        # after our own last line nothing is incomplete; after that of another process it may be
        cut = size not in (0, self._written_to) and os.pread(self._file, 1, size - 1) != b"\n"
        if cut:
            lines = b"".join((INCOMPLETE, lines))
        left = memoryview(lines)
        self._written_to = 0
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            error.filename = str(self._path)
            raise
        self._written_to = size + len(lines)
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

    def append(self, lines: bytes) -> None:
        """Append lines, each with its newline.

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


class DamagedLine(NamedTuple):
    """A line that cannot be read: the name of its file, its number from 1, and why."""

    file: str
    line: int
    why: str


def decoded_lines(
    name: str,
    lines: Iterable[bytes],
    decode: Callable[[bytes], Any],
    damaged: list[DamagedLine],
    *,
    before: int = 0,
) -> Iterator[tuple[int, Any]]:
    """The number and the decoded value of each line that can be read.

    A power cut, a failing disk or an editor may damage a line in the middle of a record. It is left
    out and named, because the other lines were paid for.

    Args:
        name: of the file.
        lines: complete ones.
        decode: makes a value of a line.
        damaged: lines that cannot be read are added here.
        before: how many lines come before these in the file.
    """
    for number, line in enumerate(lines, start=before + 1):
        if line.endswith(INCOMPLETE) or line.isspace():
            continue  # the writer of an incomplete one got an OSError
        try:
            yield number, decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            damaged.append(DamagedLine(name, number, str(error)))


def damage_text(folder: Path, damaged: Sequence[DamagedLine], count: int | None = None) -> str:
    """Which lines of a record are left out, in one line.

    >>> bad = [DamagedLine("rewards.jsonl", n, "is malformed") for n in (2, 5, 7, 8)]
    >>> damage_text(Path("runs/1"), bad[:1])
    'runs/1/rewards.jsonl:2: is damaged and left out: is malformed'
    >>> damage_text(Path("run"), bad)
    'run: 4 damaged lines are left out: rewards.jsonl:2 (is malformed), :5, :7 and 1 more'

    Args:
        folder: of the record.
        damaged: the first of them, in order.
        count: of all; None where `damaged` has them all.
    """
    first, total = damaged[0], len(damaged) if count is None else count
    if total == 1:
        return f"{folder / first.file}:{first.line}: is damaged and left out: {first.why}"
    parts = [f"{first.file}:{first.line} ({first.why})"]
    file = first.file
    for each in damaged[1:DAMAGED_SHOWN]:
        parts.append(f"{'' if each.file == file else each.file}:{each.line}")
        file = each.file
    more = f" and {total - len(parts)} more" if total > len(parts) else ""
    return f"{folder}: {total} damaged lines are left out: {', '.join(parts)}{more}"


def read_lines(path: Path, kind: Any, *, tell: bool = True) -> Iterator[tuple[int, Any]]:
    """The number and the decoded value of each complete line that can be read.

    Args:
        path: of the file.
        kind: of its lines.
        tell: warn of damaged lines, once, after the last line.

    Raises:
        DataError: there is no file, or none of its lines can be read.
    """
    damaged: list[DamagedLine] = []
    found = 0
    try:
        with path.open("rb") as file:
            # the last line is incomplete where a process was killed while writing it
            lines = (line for line in file if line.endswith(b"\n"))
            decode = msgspec.json.Decoder(kind).decode
            for found, each in enumerate(decoded_lines(path.name, lines, decode, damaged), start=1):  # noqa: B007
                yield each
    except FileNotFoundError:
        raise DataError(f"{path} does not exist: nothing was recorded there") from None
    if damaged and not found:
        raise unreadable(path.parent, damaged[0])
    if damaged and tell:
        _log.warning("%s", damage_text(path.parent, damaged))


def unreadable(folder: Path, first: DamagedLine) -> DataError:
    """The error of a file of which no line can be read."""
    where = f"{folder / first.file}:{first.line}"
    return DataError(f"{where}: is damaged, and no other line of the file can be read: {first.why}")


def encoded_lines(records: Sequence[msgspec.Struct]) -> bytes:
    """Records as lines of JSON, each with its newline.

    Halves of surrogate pairs, which no file can hold, become U+FFFD. Judges read them so too, and a
    replay finds a judgement by what the judge read.
    """
    try:
        return _encoder.encode_lines(records)
    except UnicodeEncodeError:
        plain = [msgspec.to_builtins(record, enc_hook=to_builtin) for record in records]
        return _encoder.encode_lines(_writable(plain))


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


_encoder: Final = msgspec.json.Encoder(enc_hook=to_builtin)
