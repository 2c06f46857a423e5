"""The record of a run that goes on from a checkpoint, or begins anew in the same folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from zerowait.hub.records import REWARDS, STATS, WAITS

UNDONE: Final = "rewards.undone.jsonl"
"""Where the rewards go that no checkpoint knows of."""


class _Place(msgspec.Struct, frozen=True):
    split: str = "train"
    step: int | None = None


class _Row(msgspec.Struct, frozen=True):
    sample: _Place


def begin_anew(folder: Path) -> None:
    """Put an earlier run's record aside, so that a report never mixes two runs.

    It stays beside the new one as ``rewards.previous.jsonl``, ``rewards.previous-2.jsonl``, ...
    """
    for name in (REWARDS, STATS, WAITS):
        old = folder / name
        if old.exists():
            old.replace(_unused(old))


def go_on(folder: Path, *, step: int, validates: bool) -> None:
    """Keep the record of a run that goes on from the checkpoint of `step`.

    What was rewarded for later steps is lost with them, and comes again; its rows are appended to
    ``rewards.undone.jsonl``.

    Args:
        folder: of the run.
        step: the last one that is done.
        validates: whether the run begins with a validation, which that of `step` then is again.
    """
    record = folder / REWARDS
    if not record.exists():
        return
    decode = msgspec.json.Decoder(_Row).decode

    def undone(line: bytes) -> bool:
        try:
            place = decode(line).sample
        except msgspec.MsgspecError:
            return False  # a damaged line is told of where the record is read
        if place.step is None:
            return False
        again = validates and place.split != "train"
        return place.step >= step if again else place.step > step

    _part(record, undone)


def _part(record: Path, undone: Callable[[bytes], bool]) -> None:
    """Moves lines to the other file; a process that is killed at it has lost none."""
    kept = record.with_name(f"{REWARDS}.kept")
    aside = record.with_name(UNDONE)
    with (
        record.open("rb") as lines,
        _private(kept, os.O_TRUNC) as keeping,
        _private(aside, os.O_APPEND) as moving,
    ):
        for line in lines:
            (moving if undone(line) else keeping).write(line)
    kept.replace(record)
    if not aside.stat().st_size:
        aside.unlink()


def _private(path: Path, mode: int) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | mode, 0o600), "wb")


def _unused(old: Path) -> Path:
    """The first free name for `old`: ``x.previous.jsonl``, ``x.previous-2.jsonl``."""
    name, number = old.with_suffix(".previous.jsonl"), 1
    while name.exists():
        number += 1
        name = old.with_suffix(f".previous-{number}.jsonl")
    return name
