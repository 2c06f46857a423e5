"""The record of a run: every reward, counter and wait as a line of JSON, written and read."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from zerowait.errors import ConfigError, DataError
from zerowait.pictures import holds_pictures, is_picture, picture_data, picture_url
from zerowait.record.lines import AppendOnlyFile, read_lines, to_builtin
from zerowait.types import Reward, Sample, has_parts

REWARDS = "rewards.jsonl"
STATS = "stats.jsonl"
WAITS = "waits.jsonl"
PICTURES = "pictures"
"""The folder of the pictures in the recorded prompts, each once, named by its sha-256."""
_STATS_EVERY_S = 1.0


class RewardRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One row of ``rewards.jsonl``.

    Args:
        trained_on: the number the trainer got; for an abstained row a substitute.
        substitute_from: the rows whose mean the substitute is, see `zerowait.hub.Streamed`; empty
            when the row was judged. In the file the field is called ``stand_in``.
        uid: the sample's unique name in this run, by which judgements name it.
        ticket: the name of its ticket, where it was redeemed by one; a row that is judged again,
            because the hub or the whole run was killed, has the same ticket.
        submitted_at, settled_at: Unix times in seconds.
        response_chars: of the response, where its text was not kept.
    """

    sample: Sample
    reward: Reward
    trained_on: float | None = None
    substitute_from: str = msgspec.field(default="", name="stand_in")
    ticket: str = ""
    submitted_at: float = 0.0
    settled_at: float = 0.0
    uid: str = ""
    response_chars: int | None = None


class StatsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One row of ``stats.jsonl``: the engine's counters at one moment.

    Counters begin at 0 with each hub. A run that was resumed, or whose hub was restarted, has
    several hubs; its totals are the sums over the last row of each.

    Args:
        at: Unix time in seconds.
        split, step: of the latest rewarded sample.
        stats: the fields of `zerowait.engine.Stats`.
        hub: a random id of the hub.
    """

    at: float
    split: str
    step: int | None
    stats: dict[str, Any]
    hub: str = ""


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a training step, in Unix times.

    Args:
        name: verl's name of it (``gen``, ``old_log_prob``, ``update_actor``, ...), or ``wait``.
        began_at, ended_at: Unix times in seconds.
    """

    name: str
    began_at: float
    ended_at: float


class WaitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One row of ``waits.jsonl``: how long the trainer waited for the rewards of a training step.

    Args:
        step: of the training.
        exposed_s: seconds that the trainer waited for rewards and did nothing else, as it measured
            them.
        phases: of the step, in the order in which they ended; each ``wait`` for a reward is a part
            of another phase.
    """

    step: int
    exposed_s: float
    phases: list[Phase] = []


class Records:
    """Appends records to a run's folder; every line is written to the file before it returns.

    A killed process loses no appended line. Folder and files are readable by their owner only,
    because they hold prompts and responses.

    Raises:
        ConfigError: the folder or a file in it cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        with ExitStack() as stack:
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._rewards = AppendOnlyFile(folder / REWARDS)
                stack.callback(self._rewards.close)
                self._stats = AppendOnlyFile(folder / STATS)
            except OSError as error:
                why = f"{error.filename} cannot be written to ({error.strerror})"
                raise ConfigError(f"the record {folder}: {why}: name another folder") from None
            stack.pop_all()
        self._encode = msgspec.json.Encoder(enc_hook=to_builtin).encode
        self._hub = uuid.uuid4().hex
        self._folder = folder
        self._last_stats = 0.0
        self._split_and_step: tuple[str, int | None] | None = None

    def reward(self, record: RewardRecord) -> None:
        """Append one reward.

        Raises:
            OSError: it was not written, because the disk is full, say; names the file.
        """
        if has_parts(record.sample.prompt) and holds_pictures(record.sample.prompt):
            record = msgspec.structs.replace(record, sample=self._with_files(record.sample))
        self._rewards.write(self._encode(record))

    def _with_files(self, sample: Sample) -> Sample:
        """The sample with each picture as a file of the folder, where it is stored once."""
        messages = []
        for message in sample.prompt:
            if isinstance(message, Mapping):
                message = {**message, "content": self._filed(message.get("content"))}  # noqa: PLW2901 - with files
            messages.append(message)
        return msgspec.structs.replace(sample, prompt=messages)

    def _filed(self, content: Any) -> Any:
        if not isinstance(content, list | tuple):
            return content
        parts = []
        for part in content:
            found = _data_of(part)
            if found is None:
                parts.append(part)
                continue
            data, suffix = found
            name = f"{PICTURES}/{sha256(data).hexdigest()}.{suffix}"
            self._store(self._folder / name, data)
            parts.append({"type": "image", "path": name})
        return parts

    def _store(self, path: Path, data: bytes) -> None:
        """Write a file that does not exist yet; a half of one is never seen under its name."""
        if path.exists():
            return
        path.parent.mkdir(mode=0o700, exist_ok=True)
        written = path.with_name(f"{path.name}.{self._hub}")
        written.touch(mode=0o600)
        written.write_bytes(data)
        written.replace(path)

    def stats(
        self,
        stats: Callable[[], msgspec.Struct],
        *,
        split: str,
        step: int | None,
        last: bool = False,
    ) -> bool:
        """Append the counters if the step is new or the last ones are a second old.

        Args:
            stats: gives the counters; called only when they are written.
            split: of the latest rewarded sample.
            step: of the same sample.
            last: write them in any case.

        Returns:
            Whether they were appended.
        """
        now = time.time()
        split_and_step = (split, step)
        if (
            split_and_step == self._split_and_step
            and not last
            and now - self._last_stats < _STATS_EVERY_S
        ):
            return False
        self._split_and_step, self._last_stats = split_and_step, now
        counted = msgspec.to_builtins(stats())
        row = StatsRecord(at=now, split=split, step=step, stats=counted, hub=self._hub)
        self._stats.write(self._encode(row))
        return True

    def close(self) -> None:
        """Close the files."""
        self._rewards.close()
        self._stats.close()


def _data_of(part: Any) -> tuple[bytes, str] | None:
    """Bytes and file ending of a picture; None for another part, or one without usable data."""
    try:
        url = picture_url(part) if is_picture(part) else None
    except DataError:  # its sample abstained for it
        return None
    return None if url is None else picture_data(url)


class _TicketOnly(msgspec.Struct, frozen=True):
    """The ticket of a reward's line, decoded without the rest."""

    ticket: str = ""


def hash_of(text: str) -> str:
    """The sha-256 of a text in UTF-8, as hexadecimal digits."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_rewards(folder: Path) -> Iterator[RewardRecord]:
    """The rewards recorded in `folder`, in the order in which they were recorded.

    Of several rows with one ticket only the last is returned: training used that one.

    Raises:
        DataError: there is no record, or a line is damaged.
    """
    path = folder / REWARDS
    last = {row.ticket: number for number, row in read_lines(path, _TicketOnly) if row.ticket}
    for number, record in read_lines(path, RewardRecord):
        if not record.ticket or last.get(record.ticket, number) <= number:
            yield record


def read_stats(folder: Path) -> Iterator[StatsRecord]:
    """The counters recorded in `folder`, oldest first."""
    yield from (row for _, row in read_lines(folder / STATS, StatsRecord))


def append_wait(folder: Path, record: WaitRecord) -> None:
    """Append how long the trainer waited in a step; of a repeated step the last row counts.

    Raises:
        OSError: it was not written, because the disk is full, say; names the file.
    """
    waits = AppendOnlyFile(folder / WAITS)
    try:
        waits.write(msgspec.json.encode(record))
    finally:
        waits.close()


def read_waits(folder: Path) -> dict[int, float]:
    """Seconds that the trainer waited for rewards, by step; empty where it did not measure them.

    verl's own trainers do not: they wait for rewards and rollouts at once.

    Raises:
        DataError: a line is damaged.
    """
    if not (folder / WAITS).exists():
        return {}
    return {row.step: row.exposed_s for _, row in read_lines(folder / WAITS, WaitRecord)}


def read_phases(folder: Path) -> dict[int, list[Phase]]:
    """The phases of each training step that the trainer recorded, by step.

    verl's own trainers record none.

    Raises:
        DataError: a line is damaged.
    """
    if not (folder / WAITS).exists():
        return {}
    rows = (row for _, row in read_lines(folder / WAITS, WaitRecord))
    return {row.step: row.phases for row in rows if row.phases}
