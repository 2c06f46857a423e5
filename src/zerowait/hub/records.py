"""Everything that was rewarded, as lines of JSON that can be read, scored again and reported on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from zerowait.errors import DataError
from zerowait.types import Reward, Sample

REWARDS = "rewards.jsonl"
STATS = "stats.jsonl"
_STATS_EVERY_S = 1.0


class RewardRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One row of ``rewards.jsonl``.

    Args:
        trained_on: the number the trainer got; for an abstained row a stand-in.
        stand_in: where that stand-in came from; empty when the row was judged.
        submitted_at, settled_at: Unix times in seconds.
    """

    sample: Sample
    reward: Reward
    trained_on: float | None = None
    stand_in: str = ""
    submitted_at: float = 0.0
    settled_at: float = 0.0


class StatsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One row of ``stats.jsonl``: the engine's counters at a moment of a step."""

    at: float
    split: str
    step: int | None
    stats: dict[str, Any]


class Records:
    """Appends records to a run's folder; every line is handed to the system before it returns.

    A killed process loses nothing that was appended. Folder and files are readable by their owner
    only, because they hold prompts and responses.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._rewards = _append_only(folder / REWARDS)
        self._stats = _append_only(folder / STATS)
        self._encode = msgspec.json.Encoder(enc_hook=_plain).encode
        self._last_stats = 0.0
        self._place: tuple[str, int | None] | None = None

    def reward(self, record: RewardRecord) -> None:
        """Append one reward."""
        os.write(self._rewards, self._encode(record) + b"\n")

    def stats(
        self,
        stats: Callable[[], msgspec.Struct],
        *,
        split: str,
        step: int | None,
        last: bool = False,
    ) -> None:
        """Append the counters: at each new step, once a second in between, and at the end."""
        now = time.time()
        place = (split, step)
        if place == self._place and not last and now - self._last_stats < _STATS_EVERY_S:
            return
        self._place, self._last_stats = place, now
        row = StatsRecord(at=now, split=split, step=step, stats=msgspec.to_builtins(stats()))
        os.write(self._stats, self._encode(row) + b"\n")

    def close(self) -> None:
        """Close the files."""
        os.close(self._rewards)
        os.close(self._stats)


def read_rewards(folder: Path) -> Iterator[RewardRecord]:
    """The rewards recorded in `folder`, in the order in which they were known.

    Raises:
        DataError: there is no record, or a line is damaged.
    """
    yield from _read(folder / REWARDS, RewardRecord)


def read_stats(folder: Path) -> Iterator[StatsRecord]:
    """The counters recorded in `folder`, oldest first."""
    yield from _read(folder / STATS, StatsRecord)


def _read(path: Path, kind: Any) -> Iterator[Any]:
    decoder = msgspec.json.Decoder(kind)
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    return  # the last line of a process that was killed while writing it
                try:
                    yield decoder.decode(line)
                except msgspec.MsgspecError as error:
                    raise DataError(f"{path}:{number}: is damaged: {error}") from None
    except FileNotFoundError:
        raise DataError(f"{path} does not exist: nothing was recorded there") from None


def _append_only(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _plain(value: Any) -> Any:
    """Python values of numpy scalars and arrays, which data sets bring along."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)
