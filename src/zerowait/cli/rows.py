"""Data files as samples, and rewards beside their rows again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from zerowait.errors import ConfigError, DataError, MissingExtraError
from zerowait.types import Reward, Sample

FIELDS = tuple(Sample.__struct_fields__)

_ALIASES = {
    # verl's dumps of rollouts
    "prompt": ("prompt", "input", "question"),
    "response": ("response", "output", "completion"),
    "ground_truth": ("ground_truth", "gts", "answer"),
    "group": ("group", "uid"),
    "extra": ("extra", "extra_info"),
}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a ``.jsonl`` or ``.parquet`` file.

    Raises:
        DataError: the file does not exist, is of another kind, or a line is no JSON object.
    """
    if not path.is_file():
        raise DataError(f"{path} does not exist" if not path.exists() else f"{path} is no file")
    if path.suffix == ".parquet":
        return _read_parquet(path)
    if path.suffix in (".jsonl", ".json", ".ndjson"):
        return _read_lines(path)
    raise DataError(f"{path} is neither .jsonl nor .parquet")


def samples_of(path: Path, rows: list[dict[str, Any]], columns: Mapping[str, str]) -> list[Sample]:
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
    for number, row in enumerate(rows, start=1):
        where = f"{path}:{number}"
        if isinstance(row.get("sample"), Mapping):
            samples.append(_convert(dict(row["sample"]), where))
        else:
            samples.append(_convert(_fields(row, columns, where), where))
    return samples


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]], rewards: list[Reward]) -> None:
    """Write each row with its reward, in order, replacing `path` only when all of it is written."""
    joined = [{**row, **reward_columns(reward)} for row, reward in zip(rows, rewards, strict=True)]
    unfinished = path.with_name(f".{path.name}.unfinished")
    if path.suffix == ".parquet":
        _write_parquet(unfinished, joined)
    else:
        with unfinished.open("wb") as out:
            for row in joined:
                out.write(msgspec.json.encode(row, enc_hook=_plain) + b"\n")
    unfinished.replace(path)


def reward_columns(reward: Reward) -> dict[str, Any]:
    """The columns that a reward adds: ``reward`` is None where the row abstained."""
    return {
        "reward": reward.value,
        "reward_components": msgspec.to_builtins(reward.components),
        "reward_policy": reward.policy,
        "reward_why": reward.why,
    }


def digest(path: Path) -> str:
    """The sha256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


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
    extra = dict(fields.get("extra") or {})
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
    except msgspec.ValidationError as error:
        raise DataError(f"{where}: {error}") from None


def _read_lines(path: Path) -> list[dict[str, Any]]:
    rows = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                rows.append(msgspec.json.decode(line, type=dict[str, Any]))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise DataError(f"{path}:{number}: is no JSON object: {error}") from None
    return rows


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    parquet = _parquet()
    try:
        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise DataError(f"{path}: is no Parquet file: {error}") from None
    return rows


def _write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa

    table = pa.Table.from_pylist(
        [
            {**row, "reward_components": msgspec.json.encode(row["reward_components"]).decode()}
            for row in rows
        ]
    )
    _parquet().write_table(table, path)


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("Parquet", extra="parquet") from None
    return pyarrow.parquet


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
