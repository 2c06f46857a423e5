"""Parquet tables as rows, and rows as Parquet tables that hold every one of their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zerowait.cli.json_rows import encoded
from zerowait.errors import DataError, MissingExtraError


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
