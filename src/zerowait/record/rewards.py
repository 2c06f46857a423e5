"""The record of a run: every reward, counter and wait as a line of JSON, written and read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from zerowait.record.lines import AppendOnlyFile, read_lines
from zerowait.types import Reward, Sample

REWARDS = "rewards.jsonl"
STATS = "stats.jsonl"
WAITS = "waits.jsonl"


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


class _TicketOnly(msgspec.Struct, frozen=True):
    """The ticket of a reward's line, decoded without the rest."""

    ticket: str = ""


def read_rewards(folder: Path) -> Iterator[RewardRecord]:
    """The rewards recorded in `folder`, in the order in which they were recorded.

    Of several rows with one ticket only the last is returned: training used that one. Damaged lines
    are left out, with one warning that names them.

    Raises:
        DataError: there is no record, or none of its lines can be read.
    """
    path = folder / REWARDS
    last = {
        row.ticket: number
        for number, row in read_lines(path, _TicketOnly, tell=False)
        if row.ticket
    }
    for number, record in read_lines(path, RewardRecord):
        if not record.ticket or last.get(record.ticket, number) <= number:
            yield record


def read_stats(folder: Path) -> Iterator[StatsRecord]:
    """The counters recorded in `folder`, oldest first.

    Damaged lines are left out without a warning, because later lines have newer counters.

    Raises:
        DataError: there are none, or none can be read.
    """
    yield from (row for _, row in read_lines(folder / STATS, StatsRecord, tell=False))


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
        DataError: none of the lines can be read.
    """
    if not (folder / WAITS).exists():
        return {}
    return {row.step: row.exposed_s for _, row in read_lines(folder / WAITS, WaitRecord)}


def read_phases(folder: Path) -> dict[int, list[Phase]]:
    """The phases of each training step that the trainer recorded, by step.

    verl's own trainers record none.

    Raises:
        DataError: none of the lines can be read.
    """
    if not (folder / WAITS).exists():
        return {}
    rows = (row for _, row in read_lines(folder / WAITS, WaitRecord))
    return {row.step: row.phases for row in rows if row.phases}
