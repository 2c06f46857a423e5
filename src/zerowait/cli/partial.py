"""What an interrupted ``zerowait score`` had already reached."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from zerowait.cli.rows import encoded
from zerowait.errors import ConfigError, DataError
from zerowait.types import Reward, Sample


class _Header(msgspec.Struct, frozen=True):
    task: str


class _Line(msgspec.Struct, frozen=True):
    index: int
    reward: Reward


class Partial:
    """Rewards kept beside the output until all are there; while it is open nobody else has it.

    Only rows with a value are kept: an abstention is judged again. A file that belongs to another
    task is set aside.

    Args:
        target: the output that the rewards are for.
        task: identifies data, columns and everything that decides a reward.

    Raises:
        ConfigError: another process writes this output.
        DataError: there is no place for it.
    """

    def __init__(self, target: Path, *, task: str) -> None:
        self.path = target.with_name(f".{target.name}.partial")
        self.known: dict[int, Reward] = {}
        self.set_aside: Path | None = None
        self._target = target
        self._done = False
        try:
            self._file = self._opened(task)
        except OSError as error:
            raise DataError(f"{target} cannot be written: {error.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file; remove it when nothing in it is needed any more."""
        if self._done or not self.known:
            self.path.unlink(missing_ok=True)
        os.close(self._file)

    def keep(self, index: int, reward: Reward) -> None:
        """Remember the reward of row `index`.

        Raises:
            DataError: it could not be written.
        """
        if reward.value is None:
            return
        try:
            _write(self._file, encoded(_Line(index, reward)) + b"\n")
        except OSError as error:
            raise self.unwritable(error) from None
        self.known[index] = reward

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

    def finish(self) -> None:
        """The output has been written, and nothing here is needed any more."""
        self._done = True

    def unwritable(self, error: OSError) -> DataError:
        """The error that says what could not be written, and where the rewards are."""
        kept = f"{len(self.known)} rewards are kept in {self.path}: " if self.known else ""
        return DataError(
            f"{self._target} cannot be written: {error.strerror}; {kept}"
            "make room and run the same command again"
        )

    def _opened(self, task: str) -> int:
        file = self._locked()
        found, self.known, end = _read(self.path)
        if found != task and self.known:
            self.set_aside = self.path.with_name(f"{self.path.name}.previous")
            self.path.replace(self.set_aside)
            os.close(file)
            file = self._locked()
        if found != task:
            self.known, end = {}, 0
        os.ftruncate(file, end)  # behind it is what a killed process had not written to the end
        if not end:
            _write(file, msgspec.json.encode(_Header(task)) + b"\n")
        return file

    def _locked(self) -> int:
        """The file, locked until this process ends, however it ends."""
        while True:
            file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                _lock(file)
                if os.path.samestat(os.fstat(file), self.path.stat()):
                    return file
            except BlockingIOError:
                os.close(file)
                raise ConfigError(
                    f"{self._target} is being written by another zerowait score: wait for it, or "
                    "give another --out"
                ) from None
            except FileNotFoundError:
                pass  # its owner had just finished, and took it along
            os.close(file)


def _lock(file: int) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP):  # a file system that has no locks
            raise


def _write(file: int, line: bytes) -> None:
    while line:
        line = line[os.write(file, line) :]


def _read(path: Path) -> tuple[str, dict[int, Reward], int]:
    """The task, the rewards, and where the last whole line ends, in bytes."""
    task, known, end = "", dict[int, Reward](), 0
    try:
        for number, line in enumerate(path.read_bytes().split(b"\n")[:-1]):
            if number == 0:
                task = msgspec.json.decode(line, type=_Header).task
            else:
                entry = msgspec.json.decode(line, type=_Line)
                known[entry.index] = entry.reward
            end += len(line) + 1
    except (ValueError, RecursionError):
        pass  # a line that a killed process or a disk tore: what stands before it is whole
    return task, known, end
