"""The tables of a record as Parquet files, for pandas, DuckDB, Spark and the like."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from zerowait.errors import DataError, MissingExtraError
from zerowait.record.index import TABLES

_ROWS_AT_ONCE: Final = 20_000
_TYPES: Final = {"INTEGER": "int64", "REAL": "double", "TEXT": "string"}


def export_table(index: sqlite3.Connection, table: str, path: Path) -> int:
    """Write one table as a Parquet file; how many rows it has.

    Columns have the types of the table: whole numbers, numbers and texts. An earlier file is
    replaced when all is written.

    Args:
        index: of the record; see `open_index`.
        table: one of `TABLES`.
        path: of the file.

    Raises:
        MissingExtraError: pyarrow is not installed.
        DataError: the file cannot be written.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("Parquet", extra="parquet") from None
    assert table in TABLES  # noqa: S101 - the caller looked
    columns = [
        (each["name"], each["type"]) for each in index.execute(f"PRAGMA table_info({table})")
    ]
    schema = pa.schema([(name, pa.type_for_alias(_TYPES[kind])) for name, kind in columns])
    written = path.with_name(f"{path.name}.part")
    count = 0
    try:
        with parquet.ParquetWriter(written, schema, compression="zstd") as writer:
            for rows in _chunks(index, table):
                arrays = [
                    pa.array([row[at] for row in rows], type=field.type)
                    for at, field in enumerate(schema)
                ]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
                count += len(rows)
        written.replace(path)
    except OSError as error:
        with suppress(OSError):
            written.unlink(missing_ok=True)
        why = error.strerror or str(error)
        raise DataError(f"{path} cannot be written: {why}") from None
    return count


def _chunks(index: sqlite3.Connection, table: str) -> Iterator[Sequence[Any]]:
    found = index.execute(f"SELECT * FROM {table} ORDER BY rowid")  # noqa: S608 - one of `TABLES`
    while rows := found.fetchmany(_ROWS_AT_ONCE):
        yield rows
