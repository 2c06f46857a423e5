"""Everything that was rewarded, as lines of JSON that can be read, scored again and reported on."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from zerowait.errors import ConfigError, DataError
from zerowait.types import Reward, Sample

REWARDS = "rewards.jsonl"
STATS = "stats.jsonl"
WAITS = "waits.jsonl"
_STATS_EVERY_S = 1.0
_TORN = b"\x18\n"
"""Ends a line of which only a part was written: "cancel", which JSON never holds as it is."""


class RewardRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One row of ``rewards.jsonl``.

    Args:
        trained_on: the number the trainer got; for an abstained row a stand-in.
        stand_in: where that stand-in came from; empty when the row was judged.
        ticket: under which name it was handed in, where it was fetched by one; a row that is judged
            again, because the hub or the whole run was killed, has the same one.
        submitted_at, settled_at: Unix times in seconds.
    """

    sample: Sample
    reward: Reward
    trained_on: float | None = None
    stand_in: str = ""
    ticket: str = ""
    submitted_at: float = 0.0
    settled_at: float = 0.0


class StatsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One row of ``stats.jsonl``: the engine's counters at a moment of a step.

    They begin at 0 with each hub: in a run that was resumed, or whose hub was started again, there
    are several, and what was done is the sum of the last rows of each.
    """

    at: float
    split: str
    step: int | None
    stats: dict[str, Any]
    hub: str = ""


class WaitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One row of ``waits.jsonl``: how long the trainer waited for the rewards of a training step.

    Args:
        step: of the training.
        exposed_s: seconds in which the trainer had nothing else to do, as it measured them.
    """

    step: int
    exposed_s: float


class Records:
    """Appends records to a run's folder; every line is handed to the system before it returns.

    A killed process loses nothing that was appended. Folder and files are readable by their owner
    only, because they hold prompts and responses.

    Raises:
        ConfigError: the folder or a file in it cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        with ExitStack() as opened:
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._rewards = _Appended(folder / REWARDS)
                opened.callback(self._rewards.close)
                self._stats = _Appended(folder / STATS)
            except OSError as error:
                why = f"{error.filename} cannot be written to ({error.strerror})"
                raise ConfigError(f"the record {folder}: {why}: name another folder") from None
            opened.pop_all()
        self._encode = msgspec.json.Encoder(enc_hook=_plain).encode
        self._hub = uuid.uuid4().hex
        self._last_stats = 0.0
        self._place: tuple[str, int | None] | None = None

    def reward(self, record: RewardRecord) -> None:
        """Append one reward.

        Raises:
            OSError: it was not kept, because the disk is full, say; it names the file.
        """
        self._rewards.write(self._encode(record))

    def stats(
        self,
        stats: Callable[[], msgspec.Struct],
        *,
        split: str,
        step: int | None,
        last: bool = False,
    ) -> bool:
        """Append the counters: at each new step, once a second in between, and at the end.

        Returns:
            Whether they were appended.
        """
        now = time.time()
        place = (split, step)
        if place == self._place and not last and now - self._last_stats < _STATS_EVERY_S:
            return False
        self._place, self._last_stats = place, now
        counted = msgspec.to_builtins(stats())
        row = StatsRecord(at=now, split=split, step=step, stats=counted, hub=self._hub)
        self._stats.write(self._encode(row))
        return True

    def close(self) -> None:
        """Close the files."""
        self._rewards.close()
        self._stats.close()


class _Appended:
    """A file of lines, to which several processes may append.

    A full disk takes a part of a line. What follows it is no part of it: the next line is begun
    after a mark that says so, whoever writes it, and whether or not the process was killed between.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # readable too, to see how it ends
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, line: bytes) -> None:
        left = memoryview(b"%b%b\n" % (b"" if self._is_whole() else _TORN, line))
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            error.filename = str(self._path)
            raise

    def close(self) -> None:
        os.close(self._file)

    def _is_whole(self) -> bool:
        size = os.fstat(self._file).st_size
        return size == 0 or os.pread(self._file, 1, size - 1) == b"\n"


class _Ticketed(msgspec.Struct, frozen=True):
    """What of a line says whether a later one takes its place."""

    ticket: str = ""


def read_rewards(folder: Path) -> Iterator[RewardRecord]:
    """The rewards recorded in `folder`, in the order in which they were known.

    Of the rows with one ticket it is the last that training went on with, and the only one here.

    Raises:
        DataError: there is no record, or a line is damaged.
    """
    path = folder / REWARDS
    last = {row.ticket: number for number, row in _read(path, _Ticketed) if row.ticket}
    for number, record in _read(path, RewardRecord):
        if not record.ticket or last.get(record.ticket, number) <= number:
            yield record


def read_stats(folder: Path) -> Iterator[StatsRecord]:
    """The counters recorded in `folder`, oldest first."""
    yield from (row for _, row in _read(folder / STATS, StatsRecord))


def append_wait(folder: Path, record: WaitRecord) -> None:
    """Append how long the trainer waited in a step; a step that is done again is the later row.

    Raises:
        OSError: it was not kept, because the disk is full, say; it names the file.
    """
    waits = _Appended(folder / WAITS)
    try:
        waits.write(msgspec.json.encode(record))
    finally:
        waits.close()


def read_waits(folder: Path) -> dict[int, float]:
    """Seconds that the trainer waited by step; empty where it did not measure them.

    verl's own trainers do not, since they wait for rewards and for rollouts at once.

    Raises:
        DataError: a line is damaged.
    """
    if not (folder / WAITS).exists():
        return {}
    return {row.step: row.exposed_s for _, row in _read(folder / WAITS, WaitRecord)}


def _read(path: Path, kind: Any) -> Iterator[tuple[int, Any]]:
    """Each whole line with its number."""
    decoder = msgspec.json.Decoder(kind)
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    return  # the last line of a process that was killed while writing it
                if line.endswith(_TORN):
                    continue  # whoever was to get this reward was told that it could not be kept
                try:
                    yield number, decoder.decode(line)
                except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                    raise DataError(f"{path}:{number}: is damaged: {error}") from None
    except FileNotFoundError:
        raise DataError(f"{path} does not exist: nothing was recorded there") from None


def _plain(value: Any) -> Any:
    """Python values of numpy scalars and arrays, which data sets bring along."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)
