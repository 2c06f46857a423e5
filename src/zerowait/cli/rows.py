"""Data files as samples."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from zerowait.config.messages import locate, plain_words
from zerowait.config.source import path_text
from zerowait.errors import ConfigError, DataError, MissingExtraError
from zerowait.types import Sample

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
        return msgspec.json.encode(value, enc_hook=as_json_value)
    except (OverflowError, TypeError, ValueError):  # a number beyond 64 bits, half a character
        tree = msgspec.to_builtins(value, enc_hook=as_json_value, str_keys=True)
        text = json.dumps(tree, ensure_ascii=False, default=str, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def as_json_value(value: Any) -> Any:
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


def read_table(path: Path) -> Any:
    """The table in `path`.

    Raises:
        DataError: it is no Parquet file.
        MissingExtraError: pyarrow is not installed.
    """
    parquet = _parquet()
    try:
        return parquet.read_table(path)
    except (OSError, ValueError, NotImplementedError) as error:  # pyarrow's own are ValueErrors
        raise DataError(f"{path}: is no Parquet file: {error}") from None


def rows_of(table: Any, path: Path) -> list[dict[str, Any]]:
    """The rows of a table that was read from `path`.

    Raises:
        DataError: a value has no form in Python.
    """
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
    except (ValueError, OverflowError) as error:
        raise DataError(f"{path}: has a value that cannot be read: {error}") from None
    return rows


def columns_of(rows: Sequence[Mapping[str, Any]], table: Any = None) -> dict[str, Any]:
    """The rows as Arrow columns, in the order in which their names first appear.

    A column that Arrow cannot give back as it was (values of several kinds, mappings with other
    keys in each row, empty mappings, numbers beyond 64 bits) becomes a column of JSON text.

    Args:
        rows: a row that lacks a column has null there.
        table: what the rows were read from, if that was Parquet; its columns are kept as they are.
    """
    _parquet()
    names = dict.fromkeys(name for row in rows for name in row)
    kept = {} if table is None else {name: table.column(name) for name in table.column_names}
    return {
        name: kept[name] if name in kept else _column([row.get(name) for row in rows])
        for name in names
    }


def write_table(path: Path, columns: Mapping[str, Any]) -> None:
    """Write the columns, Arrow's or lists of numbers and text, to `path`."""
    import pyarrow as pa

    _parquet().write_table(pa.table(dict(columns)), path)


def _column(values: list[Any]) -> Any:
    import pyarrow as pa

    try:
        column = pa.array(values)
        _parquet().write_table(pa.table({"column": column[:1]}), pa.BufferOutputStream())
        if column.to_pylist() == values:
            return column
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        pass  # Arrow, or Parquet, has no type for these values
    texts = [None if value is None else encoded(value).decode() for value in values]
    return pa.array(texts, type=pa.string())


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("Parquet", extra="parquet") from None
    return pyarrow.parquet


JSON = (".jsonl", ".ndjson", ".json")
PARQUET = ".parquet"

FIELDS = tuple(Sample.__struct_fields__)

_ALIASES = {
    # verl's dumps of rollouts
    "prompt": ("prompt", "input", "question"),
    "response": ("response", "output", "completion"),
    "ground_truth": ("ground_truth", "gts", "answer"),
    "group": ("group", "uid"),
    "extra": ("extra", "extra_info"),
}


class RowFile(msgspec.Struct, frozen=True):
    """The rows of a data file.

    Args:
        path: the file.
        rows: its rows, in order.
        places: how messages call each row.
        table: the Arrow table they were read from; None where they were JSON.
    """

    path: Path
    rows: list[dict[str, Any]]
    places: list[str]
    table: Any = None


def read_rows(path: Path, unusable: list[DataError] | None = None) -> RowFile:
    """The rows of a ``.jsonl``, ``.ndjson``, ``.json`` or ``.parquet`` file.

    Args:
        path: the file.
        unusable: gets what is wrong with the lines that are left out; None: the first one raises.

    Raises:
        DataError: the file does not exist, is of another kind, or a line is no JSON object.
    """
    if not path.is_file():
        raise DataError(f"{path} does not exist" if not path.exists() else f"{path} is no file")
    suffix = path.suffix.lower()
    table = None
    try:
        if suffix == PARQUET:
            table = read_table(path)
            numbered = list(enumerate(rows_of(table, path), start=1))
        elif suffix in JSON:
            numbered = list(read_json(path, unusable))
        else:
            raise DataError(f"{path} is none of {', '.join(JSON)} and {PARQUET}")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    places = [f"{path}:{number}" for number, _ in numbered]
    return RowFile(path, [row for _, row in numbered], places, table)


def samples_of(file: RowFile, columns: Mapping[str, str]) -> list[Sample]:
    """Each row as a `Sample`; columns that are no field of it go to ``extra``.

    Rows may have the fields of `Sample`, be lines of a run's ``rewards.jsonl``, be verl's rollout
    dumps (``input``, ``output``, ``gts``), or have any names that `columns` maps.

    Raises:
        DataError: a row has no prompt or response, or a value of the wrong type; names the row.
        ConfigError: `columns` maps a field that does not exist.
    """
    _check_columns(columns)
    rows = zip(file.places, file.rows, strict=True)
    return [_sample(row, columns, where) for where, row in rows]


def _check_columns(columns: Mapping[str, str]) -> None:
    for field in columns:
        if field not in FIELDS:
            raise ConfigError(f"--column {field}=...: a sample has the fields {', '.join(FIELDS)}")


def _sample(row: Mapping[str, Any], columns: Mapping[str, str], where: str) -> Sample:
    if isinstance(row.get("sample"), Mapping):
        return _convert(dict(row["sample"]), where)
    return _convert(_fields(row, columns, where), where)


def usable_samples(
    file: RowFile,
    columns: Mapping[str, str],
    check: Callable[[Sample], None],
    unusable: list[DataError],
) -> tuple[RowFile, list[Sample]]:
    """The rows that make a sample which `check` lets pass, and these samples.

    Args:
        file: all rows.
        columns: see `samples_of`.
        check: raises a DataError for a sample that lacks what the configuration needs.
        unusable: gets what is wrong with the others.

    Raises:
        ConfigError: `columns` maps a field that does not exist.
    """
    _check_columns(columns)
    kept: list[int] = []
    samples: list[Sample] = []
    for index, (where, row) in enumerate(zip(file.places, file.rows, strict=True)):
        sample = usable(partial(_checked, row, columns, where, check), unusable)
        if sample is not None:
            kept.append(index)
            samples.append(sample)
    if len(kept) == len(file.rows):
        return file, samples
    rows = [file.rows[index] for index in kept]
    places = [file.places[index] for index in kept]
    table = None if file.table is None else file.table.take(kept)
    return RowFile(file.path, rows, places, table), samples


def problems_of_rows(file: RowFile, unusable: Sequence[DataError]) -> str:
    """What is wrong with rows of a file, each problem once, with all rows that have it."""
    if len(unusable) == 1:
        return str(unusable[0])
    rows: dict[str, list[str]] = {}
    for error in unusable:
        place, _, problem = str(error).removeprefix(str(file.path)).partition(": ")
        if not place:  # "FILE: item 3: is no JSON object"
            place, _, problem = problem.partition(": ")
        rows.setdefault(problem, []).append(place.removeprefix(":"))
    lines = [f"  {_ranges(places)}: {problem}" for problem, places in rows.items()]
    return "\n".join([f"{file.path}: {len(unusable)} rows cannot be scored", *lines])


def _ranges(places: Sequence[str]) -> str:
    """Rows by their numbers, neighbours together: ``7, 9-12``."""
    spans: list[list[str]] = []
    for place in places:
        follows = spans and place.isdigit() and spans[-1][-1].isdigit()
        if follows and int(place) == int(spans[-1][-1]) + 1:
            spans[-1] = [spans[-1][0], place]
        else:
            spans.append([place])
    return ", ".join("-".join(span) for span in spans)


def _checked(
    row: Mapping[str, Any], columns: Mapping[str, str], where: str, check: Callable[[Sample], None]
) -> Sample:
    sample = _sample(row, columns, where)
    try:
        check(sample)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    return sample


def first_group(path: Path) -> list[Sample]:
    """The first row of a file, with its siblings where it has a ``group``."""
    samples = samples_of(read_rows(path), {})
    if not samples or samples[0].group is None:
        return samples[:1]
    return [sample for sample in samples if sample.group == samples[0].group]


def _fields(row: Mapping[str, Any], columns: Mapping[str, str], where: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    used: set[str] = set()
    for field in FIELDS:
        names = (columns[field],) if field in columns else _ALIASES.get(field, (field,))
        name = next((name for name in names if name in row), None)
        if name is not None:
            fields[field] = row[name]
            used.add(name)
        elif field in columns:
            have = ", ".join(row)
            raise DataError(f"{where}: has no column {columns[field]!r}; it has {have}")
    reward_model = row.get("reward_model")
    if "ground_truth" not in fields and isinstance(reward_model, Mapping):
        fields["ground_truth"] = reward_model.get("ground_truth")
        used.add("reward_model")
    for field in ("prompt", "response"):
        if field not in fields:
            raise DataError(
                f"{where}: has no {field!r} (nor {', '.join(_ALIASES[field][1:])}); it has "
                f"{', '.join(row)}. Name its column with --column {field}=NAME"
            )
    given = fields.get("extra")
    if given is not None and not isinstance(given, Mapping):
        name = next(name for name in (columns.get("extra"), *_ALIASES["extra"]) if name in row)
        raise DataError(f"{where}: {name} must be a mapping, not {type(given).__name__}")
    extra = dict(given or {})
    extra.update({k: v for k, v in row.items() if k not in used and k not in FIELDS})
    fields["extra"] = extra
    return fields


def _convert(fields: dict[str, Any], where: str) -> Sample:
    for name in ("group", "id"):
        if isinstance(fields.get(name), int):
            fields[name] = str(fields[name])
    if fields.get("data_source") is None:
        fields.pop("data_source", None)
    try:
        return msgspec.convert(fields, Sample)
    except DataError as error:  # a sample's own check
        raise DataError(f"{where}: {error}") from None
    except msgspec.ValidationError as error:
        path, problem = locate(str(error))
        raise DataError(f"{where}: {path_text(path)} {plain_words(problem)}".strip()) from None
