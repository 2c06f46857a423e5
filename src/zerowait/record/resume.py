"""The record when a run resumes from a checkpoint, or starts over in the same folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from zerowait.record.configuration import EARLIER_CONFIGURATIONS
from zerowait.record.judgements import EVENTS, JUDGEMENTS, OPINIONS
from zerowait.record.lines import parts_of
from zerowait.record.rewards import REWARDS, STATS, WAITS

UNDONE: Final = "rewards.undone.jsonl"
"""The file for rewards of steps after the checkpoint, which are trained again."""


class _SplitAndStep(msgspec.Struct, frozen=True):
    split: str = "train"
    step: int | None = None


class _RewardLine(msgspec.Struct, frozen=True):
    """A line of ``rewards.jsonl``, decoded only as far as its step."""

    sample: _SplitAndStep


def archive_record(folder: Path) -> None:
    """Rename an earlier run's record, so that a report never mixes two runs.

    It stays in the folder as ``rewards.previous.jsonl``, ``rewards.previous-2.jsonl``, ...
    """
    lines = (REWARDS, STATS, WAITS, JUDGEMENTS, EVENTS, OPINIONS, UNDONE, EARLIER_CONFIGURATIONS)
    for name in lines:
        for old in parts_of(folder, name):
            old.replace(_archive_name(old))


def rewind_record(
    folder: Path, *, step: int, validates: bool, counts_from_zero: bool = False
) -> None:
    """Remove the rewards after `step` from the record of a run that resumes from its checkpoint.

    Those steps are trained again; their rows are appended to ``rewards.undone.jsonl``. Their
    judgements, which were paid for, stay in ``judgements.jsonl``.

    Args:
        folder: of the run.
        step: of the checkpoint.
        validates: whether the run starts with a validation, which repeats the one at `step`.
        counts_from_zero: whether the trainer's first step is 0, so that responses of `step` are
            trained on after the checkpoint.
    """
    record = folder / REWARDS
    if not record.exists():
        return
    decode = msgspec.json.Decoder(_RewardLine).decode

    def undone(line: bytes) -> bool:
        try:
            of = decode(line).sample
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return False  # it stays where it is, and readers of the record name it
        if of.step is None:
            return False
        repeated = counts_from_zero if of.split == "train" else validates
        return of.step >= step if repeated else of.step > step

    # the record is replaced last, so that a process that is killed here loses no line
    kept, moved = folder / f"{REWARDS}.kept", folder / UNDONE
    with (
        record.open("rb") as lines,
        _open_private(kept, os.O_TRUNC) as keeping,
        _open_private(moved, os.O_APPEND) as moving,
    ):
        for line in lines:
            (moving if undone(line) else keeping).write(line)
    kept.replace(record)
    if not moved.stat().st_size:
        moved.unlink()


def _open_private(path: Path, mode: int) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | mode, 0o600), "wb")


def _archive_name(old: Path) -> Path:
    """The first free name for `old`: ``x.previous.jsonl``, ``x.previous-2.jsonl``."""
    name, number = old.with_suffix(".previous.jsonl"), 1
    while name.exists():
        number += 1
        name = old.with_suffix(f".previous-{number}.jsonl")
    return name
