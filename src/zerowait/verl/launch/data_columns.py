"""Check a data file's columns and rows before anything heavy is started."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from zerowait.errors import DataError, MissingExtraError, did_you_mean
from zerowait.verl.rows import extra_in, mapping_in

_ROWS_AT_A_TIME = 1024


def check_data_file(
    path: str | Path,
    *,
    prompt_key: str = "prompt",
    check: Callable[[Mapping[str, Any]], object] | None = None,
) -> int:
    """The number of rows of a valid file: each row has chat messages and a ground truth.

    Args:
        path: a Parquet or JSONL file in verl's columns.
        prompt_key: the column of chat messages.
        check: raises a DataError for a row that lacks something else.

    Raises:
        DataError: names the file, and the column or row that is wrong.
        MissingExtraError: reading Parquet needs pyarrow.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(f"{file}: there is no such file")
    if file.suffix == ".parquet":
        columns, rows = _parquet(file, prompt_key)
    elif file.suffix in {".jsonl", ".json"}:
        columns, rows = None, _jsonl(file)
    else:
        raise DataError(f"{file}: verl reads .parquet, .jsonl and .json files")
    if columns is not None:
        _check_columns(file, columns, prompt_key)
    count = 0
    for count, row in enumerate(rows, start=1):
        _check_row(file, count, row, prompt_key)
        if check is not None:
            try:
                check(row)
            except DataError as error:
                raise DataError(f"{file}, row {count}: {error}") from None
    if not count:
        raise DataError(f"{file}: has no rows")
    return count


def _check_columns(file: Path, columns: list[str], prompt_key: str) -> None:
    for column in (prompt_key, "reward_model"):
        if column not in columns:
            hint = did_you_mean(column, columns)
            raise DataError(f"{file}: has no column {column!r}{hint}")


def _check_row(file: Path, number: int, row: Mapping[str, Any], prompt_key: str) -> None:
    where = f"{file}, row {number}"
    if prompt_key not in row:
        raise DataError(f"{where}: has no column {prompt_key!r}{did_you_mean(prompt_key, row)}")
    messages = row[prompt_key]
    if not isinstance(messages, list) or not messages:
        raise DataError(
            f"{where}: column {prompt_key!r} has to be a list of chat messages such as "
            f'[{{"role": "user", "content": "..."}}], not {_kind(messages)}'
        )
    if not all(isinstance(message, dict) and "content" in message for message in messages):
        raise DataError(f"{where}: column {prompt_key!r} has a message without 'content'")
    truth = mapping_in(row.get("reward_model"))
    if isinstance(truth, str):
        raise DataError(
            f"{where}: column 'reward_model' has to be a mapping such as "
            f'{{"ground_truth": ...}}, or the same as JSON, not {_kind(truth)}'
        )
    if not isinstance(truth, dict) or truth.get("ground_truth") is None:
        raise DataError(
            f"{where}: column 'reward_model' has no 'ground_truth': give the gold answer as "
            'reward_model = {"ground_truth": ...}'
        )
    extra_in(row, where)


def _parquet(file: Path, prompt_key: str) -> tuple[list[str], Iterator[dict[str, Any]]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise MissingExtraError("reading Parquet", extra="parquet") from None
    try:
        table = parquet.ParquetFile(file)
    except ArrowException as error:
        raise DataError(f"{file}: is not a Parquet file ({error})") from None
    names = list(table.schema_arrow.names)
    wanted = [
        name for name in (prompt_key, "reward_model", "extra_info", "data_source") if name in names
    ]

    def rows() -> Iterator[dict[str, Any]]:
        try:
            for batch in table.iter_batches(batch_size=_ROWS_AT_A_TIME, columns=wanted):
                yield from batch.to_pylist()
        except (ArrowException, OSError) as error:
            raise DataError(f"{file}: is damaged ({error})") from None

    return names, rows()


def _jsonl(file: Path) -> Iterator[dict[str, Any]]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = msgspec.json.decode(line.removeprefix(BOM_UTF8))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise DataError(f"{file}, line {number}: is not JSON ({error})") from None
            except RecursionError:
                raise DataError(f"{file}, line {number}: is nested too deeply") from None
            if not isinstance(row, dict):
                raise DataError(f"{file}, line {number}: is not a JSON object")
            yield row


def _kind(value: Any) -> str:
    return "missing" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"
