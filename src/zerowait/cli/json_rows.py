"""Rows of JSON: read with the number of each line, and written so that no value is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from zerowait.errors import DataError

T = TypeVar("T")

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NO_JSON = (b"NaN", b"Infinity")
_WORDS = {list: "a list", str: "text", bool: "true or false", type(None): "null"}


def read_json(
    path: Path, unusable: list[DataError] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each row with its number: its line, or its place in the list of a ``.json`` file.

    A ``.json`` file may also hold a single object over many lines, which is one row.

    Args:
        path: the file.
        unusable: gets what is wrong with the lines that are left out; None: the first one raises.

    Raises:
        DataError: a line, or an item of the list, is no JSON object; names it and says what it is.
    """
    with path.open("rb") as file:
        start = file.read(4096).removeprefix(_BYTE_ORDER_MARK).lstrip()
        file.seek(0)
        if path.suffix.lower() == ".json" and start.startswith(b"["):
            items = _decoded(file.read().removeprefix(_BYTE_ORDER_MARK), str(path))
            for number, item in enumerate(items, start=1):
                row = usable(partial(_row, item, f"{path}: item {number}"), unusable)
                if row is not None:
                    yield number, row
            return
        if path.suffix.lower() == ".json" and not _is_whole(file.readline()):
            file.seek(0)
            row = usable(
                partial(_row_in, file.read().removeprefix(_BYTE_ORDER_MARK), str(path)), unusable
            )
            if row is not None:
                yield 1, row
            return
        file.seek(0)
        for number, line in enumerate(file, start=1):
            text = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
            if text.strip():
                row = usable(partial(_row_in, text, f"{path}:{number}"), unusable)
                if row is not None:
                    yield number, row


def usable(read: Callable[[], T], unusable: list[DataError] | None) -> T | None:
    """What `read` makes of a row; None, with the reason in `unusable`, where it can make nothing.

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


def _is_whole(line: bytes) -> bool:
    """Whether a line is JSON by itself; where the first is not, one object fills the file."""
    try:
        msgspec.json.decode(line.removeprefix(_BYTE_ORDER_MARK) or b"null")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def encoded(value: Any) -> bytes:
    """`value` as JSON; what JSON has no form for becomes text.

    >>> encoded({"a": 1, "b": {2}, "c": 10**30}) == b'{"a":1,"b":[2],"c":%d}' % 10**30
    True
    """
    try:
        return msgspec.json.encode(value, enc_hook=plain)
    except (OverflowError, TypeError, ValueError):  # a number beyond 64 bits, half a character
        tree = msgspec.to_builtins(value, enc_hook=plain, str_keys=True)
        text = json.dumps(tree, ensure_ascii=False, default=str, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def plain(value: Any) -> Any:
    """Python values of numpy scalars and arrays, which data sets bring along; else text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _decoded(text: bytes, where: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        problem = str(error).removeprefix("JSON is malformed: ")
        place = re.search(r"\(byte (\d+)\)", problem)
        if place is not None and text[int(place[1]) :].startswith(_NO_JSON):
            problem = "NaN and Infinity are none; write null"
        raise DataError(f"{where}: is no JSON object: {problem}") from None
    except RecursionError:
        raise DataError(f"{where}: is no JSON object: it is nested too deeply") from None


def _row_in(text: bytes, where: str) -> dict[str, Any]:
    return _row(_decoded(text, where), where)


def _row(value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    what = _WORDS.get(type(value), "a number")
    raise DataError(f"{where}: is no JSON object but {what}: a row is {{column: value}}")
