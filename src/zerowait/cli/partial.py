"""What an interrupted ``zerowait score`` had already reached."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from zerowait.types import Reward, Sample


class _Header(msgspec.Struct, frozen=True):
    task: str


class _Line(msgspec.Struct, frozen=True):
    index: int
    reward: Reward


class Partial:
    """Rewards kept beside the output until all are there.

    Only rows with a value are kept: an abstention is judged again. A file that belongs to another
    task (other data, columns or configuration) is ignored and written anew.

    Args:
        path: the file. task: identifies data, columns and configuration.
    """

    def __init__(self, path: Path, *, task: str) -> None:
        self._path = path
        self.known = _read(path, task)
        if not self.known:
            path.write_bytes(msgspec.json.encode(_Header(task)) + b"\n")
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)

    def keep(self, index: int, reward: Reward) -> None:
        """Remember the reward of row `index`."""
        if reward.value is not None:
            os.write(self._file, msgspec.json.encode(_Line(index, reward)) + b"\n")

    def missing(self, samples: list[Sample]) -> list[int]:
        """Rows to score: those not known, and all siblings of such rows, which a shape needs."""
        open_groups = {
            sample.group
            for index, sample in enumerate(samples)
            if index not in self.known and sample.group is not None
        }
        return [
            index
            for index, sample in enumerate(samples)
            if index not in self.known or sample.group in open_groups
        ]

    def close(self, *, done: bool) -> None:
        """Close the file, and remove it when the whole output has been written."""
        os.close(self._file)
        if done:
            self._path.unlink()


def _read(path: Path, task: str) -> dict[int, Reward]:
    known: dict[int, Reward] = {}
    try:
        lines = path.read_bytes().split(b"\n")
        if msgspec.json.decode(lines[0], type=_Header).task != task:
            return known
        for line in lines[1:-1]:
            entry = msgspec.json.decode(line, type=_Line)
            known[entry.index] = entry.reward
    except (FileNotFoundError, msgspec.MsgspecError):
        pass
    return known
