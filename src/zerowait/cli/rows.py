"""Data files as samples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from zerowait.cli.json_rows import read_json
from zerowait.cli.parquet import read_table, rows_of
from zerowait.config.source import spell
from zerowait.config.words import locate, plain_words
from zerowait.errors import ConfigError, DataError
from zerowait.types import Sample

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


def read_rows(path: Path) -> RowFile:
    """The rows of a ``.jsonl``, ``.ndjson``, ``.json`` or ``.parquet`` file.

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
            numbered = list(read_json(path))
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
    for field in columns:
        if field not in FIELDS:
            raise ConfigError(f"--column {field}=...: a sample has the fields {', '.join(FIELDS)}")
    samples = []
    for where, row in zip(file.places, file.rows, strict=True):
        if isinstance(row.get("sample"), Mapping):
            samples.append(_convert(dict(row["sample"]), where))
        else:
            samples.append(_convert(_fields(row, columns, where), where))
    return samples


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
        raise DataError(f"{where}: {spell(path)} {plain_words(problem)}".strip()) from None
