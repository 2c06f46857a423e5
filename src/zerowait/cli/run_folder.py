"""The folder of a run's record, as commands take it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from difflib import get_close_matches
from pathlib import Path

from zerowait.errors import DataError
from zerowait.record import REWARDS, RecordIndex, damage_in, open_index


def run_folder(given: Path) -> Path:
    """The folder with a record that `given` names: itself, or the folder of its ``rewards.jsonl``.

    Raises:
        DataError: there is no record; names the nearest folder that has one.
    """
    folder = given.parent if given.name == REWARDS else given
    if (folder / REWARDS).is_file():
        return folder
    if given.is_file():
        raise DataError(f"{given} is a file; name the folder of a run, with its {REWARDS}")
    check_exists(folder)
    raise DataError(f"{folder} holds no record: it has no {REWARDS}{_hint(folder)}")


def check_exists(folder: Path) -> None:
    """Raise a DataError where there is no `folder`; it names the nearest one that has a record."""
    if not folder.exists():
        raise DataError(f"there is no folder {folder}{_hint(folder)}")


@contextmanager
def opened_record(folder: Path) -> Iterator[RecordIndex]:
    """The index of the record in `folder`; damaged lines are named on the standard error.

    Raises:
        DataError: there is no such folder, or see `open_index`.
    """
    check_exists(folder)
    with closing(open_index(folder)) as index:
        print_damage(damage_in(index))
        yield index


def print_damage(damage: str) -> None:
    """Print on the standard error which lines of a record are damaged, if any."""
    if damage:
        print(f"zerowait: {damage}", file=sys.stderr)


def _hint(folder: Path) -> str:
    near = _folders_near(folder)
    return f"; did you mean {near[0]}?" if near else ""


def _folders_near(folder: Path) -> list[Path]:
    """Folders with a record: inside of `folder`, or beside it under a similar name."""
    if folder.is_dir():
        return sorted(file.parent for file in folder.glob(f"*/{REWARDS}"))[:1]
    if not folder.parent.is_dir():
        return []
    beside = {path.parent.name: path.parent for path in folder.parent.glob(f"*/{REWARDS}")}
    return [beside[name] for name in get_close_matches(folder.name, beside, n=1)]
