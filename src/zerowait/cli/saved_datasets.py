"""Hugging Face data sets on disk: the folders that ``save_to_disk`` writes, read with pyarrow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from zerowait.errors import DataError, MissingExtraError, did_you_mean

_SPLITS_FILE: Final = "dataset_dict.json"
_STATE_FILE: Final = "state.json"


def is_saved_dataset(folder: Path) -> bool:
    """Whether ``Dataset.save_to_disk`` or ``DatasetDict.save_to_disk`` wrote the folder."""
    return (folder / _STATE_FILE).is_file() or (folder / _SPLITS_FILE).is_file()


def dataset_folder(folder: Path, split: str | None) -> Path:
    """The folder with the rows: `folder` itself, or that of a split of a ``DatasetDict``.

    Args:
        folder: of a saved data set.
        split: the name of the split; None where there is only one, or `folder` is a split itself.

    Raises:
        DataError: the data set has several splits and `split` is None, or it has no such split.
    """
    if not (folder / _SPLITS_FILE).is_file():
        if split is None:
            return folder
        raise DataError(f"--split {split}: {folder} is no saved data set with splits")
    splits = _json(folder / _SPLITS_FILE).get("splits")
    if not isinstance(splits, list) or not all(isinstance(each, str) for each in splits):
        raise DataError(f"{folder / _SPLITS_FILE}: does not list the splits")
    if split is None and len(splits) != 1:
        names = ", ".join(splits)
        raise DataError(f"{folder} has the splits {names}: choose one with --split NAME")
    if split is not None and split not in splits:
        raise DataError(f"--split {split}: {folder} has no such split{did_you_mean(split, splits)}")
    return folder / (split or splits[0])


def rewards_name(folder: Path, split: str | None) -> Path:
    """The default output of `folder`, without its ending, outside of the data set.

    >>> str(rewards_name(Path("sets/qa"), "test"))
    'sets/qa.test.rewards'
    """
    if folder.name in {"", ".."} or (not folder.parent.name and _is_split(folder)):
        folder = folder.resolve()  # "." has no name, and "test" no folder with one
    rows = dataset_folder(folder, split) if is_saved_dataset(folder) else folder
    if _is_split(rows):
        return rows.parent.with_name(f"{rows.parent.name}.{rows.name}.rewards")
    name = f"{folder.name}.{split}" if split else folder.name
    return folder.with_name(f"{name}.rewards")


def read_saved_dataset(folder: Path, split: str | None) -> Any:
    """The rows as an Arrow table, memory-mapped.

    Raises:
        DataError: the folder is no saved data set, or one of its files cannot be read.
        MissingExtraError: pyarrow is not installed.
    """
    rows = dataset_folder(folder, split)
    if not (rows / _STATE_FILE).is_file():
        raise DataError(
            f"{rows} is a folder, but no data set that save_to_disk wrote; --watch scores the "
            "files of a folder of rollouts"
        )
    state = _json(rows / _STATE_FILE)
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise DataError(f"{rows}: its rows are only indices; save it after flatten_indices()")
    try:
        names = [str(each["filename"]) for each in state["_data_files"]]
    except (KeyError, TypeError):
        raise DataError(f"{rows / _STATE_FILE}: does not list the data files") from None
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtraError("a saved data set", extra="parquet") from None
    tables = [_read_arrow(rows / name) for name in names]
    return pa.concat_tables(tables) if tables else pa.table({})


def _is_split(folder: Path) -> bool:
    """Whether the folder is one split of a saved ``DatasetDict``."""
    return (folder.parent / _SPLITS_FILE).is_file()


def _read_arrow(file: Path) -> Any:
    """The table of an Arrow file: a stream, as data sets are saved, or the file format."""
    import pyarrow as pa

    try:
        source = pa.memory_map(str(file))
        try:
            return pa.ipc.open_stream(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_file(source).read_all()
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{file}: is no Arrow file: {error}") from None


def _json(file: Path) -> dict[str, Any]:
    try:
        tree = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: cannot be read as JSON: {error}") from None
    if not isinstance(tree, dict):
        raise DataError(f"{file}: is no JSON object")
    return tree
