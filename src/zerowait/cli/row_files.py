"""Data files: rows read from JSON Lines, JSON and Parquet, and written as JSON Lines or Parquet."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import msgspec

from zerowait.cli.saved_datasets import read_saved_dataset
from zerowait.errors import DataError, MissingExtraError

T = TypeVar("T")

JSON_SUFFIXES: Final = (".jsonl", ".ndjson", ".json")
PARQUET_SUFFIX: Final = ".parquet"
STANDARD_STREAM: Final = Path("-")
"""In place of a file: standard input where one is read, standard output where one is written."""

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_NOT_IN_JSON = (b"NaN", b"Infinity")
_TYPE_NAMES = {list: "a list", str: "text", bool: "true or false", type(None): "null"}


class RowFile(msgspec.Struct, frozen=True):
    """The rows of a data file.

    Args:
        path: the file, or `STANDARD_STREAM`.
        rows: its rows, in order.
        places: the name of each row in messages, ``FILE:LINE``.
        table: the Arrow table that the rows were read from; None where they were JSON.
    """

    path: Path
    rows: list[dict[str, Any]]
    places: list[str]
    table: Any = None


def read_rows(
    path: Path,
    unusable: list[DataError] | None = None,
    *,
    split: str | None = None,
    limit: int | None = None,
) -> RowFile:
    """The rows of a ``.jsonl``, ``.ndjson``, ``.json`` or ``.parquet`` file, or a saved data set.

    Args:
        path: the file, or the folder that ``save_to_disk`` of Hugging Face's ``datasets`` wrote;
            `STANDARD_STREAM` reads JSON Lines from standard input.
        unusable: collects the error of each row that cannot be read; None raises the first one.
        split: of a data set that was saved with several.
        limit: reads only so many rows, the first ones; None: all.

    Raises:
        DataError: the file does not exist, is of another kind, or a row is no JSON object.
        MissingExtraError: the file is Parquet or a data set, and pyarrow is not installed.
    """
    if split is not None and not path.is_dir():
        raise DataError(f"--split {split}: {file_name(path)} is no saved data set with splits")
    if path == STANDARD_STREAM or (path.suffix.lower() in JSON_SUFFIXES and not path.is_dir()):
        table, numbered = None, list(read_json(path, unusable, limit=limit))
    else:
        table = _read_table(path, split).slice(0, limit)
        try:
            numbered = list(enumerate(table.to_pylist(), start=1))
        except (ValueError, OverflowError) as error:
            raise DataError(f"{path}: has a value that cannot be read: {error}") from None
    places = [f"{file_name(path)}:{number}" for number, _ in numbered]
    return RowFile(path, [row for _, row in numbered], places, table)


def read_json(
    path: Path, unusable: list[DataError] | None = None, *, limit: int | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each row with its number: its line, or its position in the list of a ``.json`` file.

    A ``.json`` file may hold JSON Lines, one list of rows, or a single object over many lines,
    which is one row. Lines are read one by one, so that the file may be larger than the memory.

    Args:
        path: the file; `STANDARD_STREAM` reads JSON Lines from standard input.
        unusable: collects the error of each row that is no JSON object; None raises the first one.
        limit: reads only so many rows, the first ones; None: all.

    Raises:
        DataError: the file cannot be read, or a row is no JSON object; names the row.
    """
    name = file_name(path)
    if path != STANDARD_STREAM:
        _check_is_file(path)
    with open_input(path) as file:
        whole = _whole_document(file) if path.suffix.lower() == ".json" else None
        if whole is None:
            read: Iterator[tuple[int, Callable[[], dict[str, Any]]]] = (
                (number, partial(decode_row, line, f"{name}:{number}"))
                for number, line in enumerate(_without_mark(file), start=1)
                if line.strip()
            )
        elif whole.lstrip().startswith(b"["):
            items = _decode(whole, name)
            read = (
                (number, partial(_checked_row, item, f"{name}: item {number}"))
                for number, item in enumerate(items, start=1)
            )
        else:
            read = iter([(1, partial(decode_row, whole, name))])
        for number, row_of in islice(read, limit):
            row = collect_error(row_of, unusable)
            if row is not None:
                yield number, row


@contextmanager
def open_input(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes to read, or those of standard input for `STANDARD_STREAM`.

    Raises:
        DataError: the file cannot be opened.
    """
    if path == STANDARD_STREAM:
        yield sys.stdin.buffer
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    with file:
        yield file


def file_name(path: Path) -> str:
    """The name of an input in messages."""
    return "standard input" if path == STANDARD_STREAM else str(path)


def collect_error(read: Callable[[], T], unusable: list[DataError] | None) -> T | None:
    """Result of `read`; None after a DataError, which is appended to `unusable`.

    Raises:
        DataError: of `read`, where `unusable` is None.
    """
    try:
        return read()
    except DataError as error:
        if unusable is None:
            raise
        unusable.append(error)
        return None


def encode_json(value: Any) -> bytes:
    """`value` as JSON; what JSON has no form for becomes text.

    >>> encode_json({"a": 1, "b": {2}, "c": 10**30}) == b'{"a":1,"b":[2],"c":%d}' % 10**30
    True
    """
    try:
        return msgspec.json.encode(value, enc_hook=as_json_value)
    except (OverflowError, TypeError, ValueError):  # an integer over 64 bits, a lone surrogate
        tree = msgspec.to_builtins(value, enc_hook=as_json_value, str_keys=True)
        text = json.dumps(tree, ensure_ascii=False, default=str, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def as_json_value(value: Any) -> Any:
    """The Python values of a numpy scalar or array, which data sets contain; else text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def columns_of(rows: Sequence[Mapping[str, Any]], table: Any = None) -> dict[str, Any]:
    """The rows as Arrow columns, in the order in which their names first appear.

    A column that Arrow cannot give back unchanged (values of several types, mappings with other
    keys in each row, empty mappings, integers beyond 64 bits) becomes a column of JSON text.

    Args:
        rows: a row that lacks a column has null there.
        table: the Arrow table that the rows were read from, if any; its columns are kept.
    """
    _parquet()
    names = dict.fromkeys(name for row in rows for name in row)
    kept = {} if table is None else {name: table.column(name) for name in table.column_names}
    return {
        name: kept[name] if name in kept else _column([row.get(name) for row in rows])
        for name in names
    }


def write_parquet(file: BinaryIO, columns: Mapping[str, Any]) -> None:
    """Write columns, those of Arrow or lists of numbers and text, to an open file."""
    import pyarrow as pa

    _parquet().write_table(pa.table(dict(columns)), file)


def write_json_lines(file: BinaryIO, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write one JSON object a line to an open file; the number of rows."""
    count = 0
    for row in rows:
        file.write(encode_json(row) + b"\n")
        count += 1
    return count


def _check_is_file(path: Path) -> None:
    if not path.is_file():
        raise DataError(f"{path} does not exist" if not path.exists() else f"{path} is no file")


def _whole_document(file: BinaryIO) -> bytes | None:
    """The bytes of a ``.json`` file that is one JSON document; None where it is JSON Lines."""
    first = file.readline().removeprefix(BYTE_ORDER_MARK)
    while first and not first.strip():
        first = file.readline()
    is_one_document = first.lstrip().startswith(b"[") or not _is_json(first)
    file.seek(0)
    return file.read().removeprefix(BYTE_ORDER_MARK) if is_one_document else None


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line or b"null")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _without_mark(file: BinaryIO) -> Iterator[bytes]:
    """The lines, without the byte order mark that some editors put before the first one."""
    yield file.readline().removeprefix(BYTE_ORDER_MARK)
    yield from file


def decode_row(text: bytes, where: str) -> dict[str, Any]:
    """The row in a line of JSON; a DataError that begins with `where` when it holds none."""
    return _checked_row(_decode(text, where), where)


def _decode(text: bytes, where: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        problem = str(error).removeprefix("JSON is malformed: ")
        place = re.search(r"\(byte (\d+)\)", problem)
        if place is not None and text[int(place[1]) :].startswith(_NOT_IN_JSON):
            problem = "NaN and Infinity are none; write null"
        if not _is_utf8(text):
            problem = "it is not in UTF-8, in which the file has to be saved"
        raise DataError(f"{where}: is no JSON object: {problem}") from None
    except RecursionError:
        raise DataError(f"{where}: is no JSON object: it is nested too deeply") from None


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _checked_row(value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    what = _TYPE_NAMES.get(type(value), "a number")
    raise DataError(f"{where}: is no JSON object but {what}: a row is {{column: value}}")


def _read_table(path: Path, split: str | None) -> Any:
    """The Arrow table of a Parquet file, or of a saved data set."""
    if path.is_dir():
        return read_saved_dataset(path, split)
    _check_is_file(path)
    if path.suffix.lower() != PARQUET_SUFFIX:
        kinds = f"{', '.join(JSON_SUFFIXES)} and {PARQUET_SUFFIX}"
        raise DataError(f"{path} is none of {kinds}: save its rows as one of them")
    return _read_parquet(path)


def _read_parquet(path: Path) -> Any:
    parquet = _parquet()
    try:
        return parquet.read_table(path)
    except (OSError, ValueError, NotImplementedError) as error:  # pyarrow's own are ValueErrors
        raise DataError(f"{path}: is no Parquet file: {error}") from None


def _column(values: list[Any]) -> Any:
    import pyarrow as pa

    try:
        column = pa.array(values)
        _parquet().write_table(pa.table({"column": column[:1]}), pa.BufferOutputStream())
        if column.to_pylist() == values:
            return column
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        pass  # Arrow, or Parquet, has no type for these values
    texts = [None if value is None else encode_json(value).decode() for value in values]
    return pa.array(texts, type=pa.string())


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("Parquet", extra="parquet") from None
    return pyarrow.parquet
