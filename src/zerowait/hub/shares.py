"""How many of a job's slots each shard may use, so that together they never use too many. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from zerowait.engine import Stats, StepRow

FLOOR: Final = 1
"""Every shard begins with it, and keeps it: who waits there never waits for the next round only."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a shard says of itself.

    Args:
        slots: how many are its own now.
        held: how many requests are in flight; more than `slots` where those were just taken away.
        demand: how many it could use now: those in flight, and those in line.
        stats: its statistics.
        rows: what the alarms about rewards look at, since its last report.
    """

    slots: int
    held: int
    demand: int
    stats: Stats = Stats()
    rows: list[StepRow] = []


def divided(total: int, demands: Sequence[int]) -> list[int]:
    """`total` slots among shards with these demands.

    Nobody gets less than an equal part while others get more than that (max-min fairness), each
    gets at least `FLOOR`, and what nobody asks for is spread evenly. The parts sum to `total`.

    Raises:
        ValueError: there are more shards than slots.

    >>> divided(32, [100, 4, 0]), divided(32, [3, 0, 0, 1])
    ([27, 4, 1], [10, 8, 7, 7])
    """
    if len(demands) * FLOOR > total:
        raise ValueError(f"{total} slots are too few for {len(demands)} shards")
    wanted = [max(FLOOR, demand) for demand in demands]
    spare = total - sum(wanted)
    if spare >= 0:
        each, more = divmod(spare, len(wanted))
        return [want + each + (index < more) for index, want in enumerate(wanted)]
    parts, left = [0] * len(wanted), total
    modest_first = sorted(range(len(wanted)), key=wanted.__getitem__)
    for place, index in enumerate(modest_first):
        parts[index] = min(wanted[index], left // (len(wanted) - place))
        left -= parts[index]
    return parts


class Shares:
    """The slots of a job among its shards, from round to round: taken away before they are given.

    What a shard may still use is known as an upper bound: what it was given, or what it has in
    flight if that is more. Slots are given only from what no bound covers. A shard that is silent
    keeps its bound; one whose process is gone has nothing, and begins with `FLOOR` when it is
    started again, for which room is kept.

    Args:
        total: slots of the job.
        count: of the shards.
    """

    def __init__(self, total: int, count: int) -> None:
        self._total = total
        self._reports: list[Report | None] = [None] * count
        self._bounds: list[int | None] = [None] * count

    def heard(self, index: int, report: Report) -> None:
        """The shard at `index` says how it stands."""
        self._reports[index] = report
        self._bounds[index] = max(report.slots, report.held)

    def gone(self, index: int) -> None:
        """The process of the shard at `index` is dead."""
        self.heard(index, Report(slots=FLOOR, held=0, demand=0))

    def to_take(self) -> dict[int, int]:
        """Who has to give slots back, and how many it keeps."""
        targets = self._targets()
        known = enumerate(self._reports)
        return {i: targets[i] for i, said in known if said is not None and targets[i] < said.slots}

    def to_give(self) -> dict[int, int]:
        """Who gets more, and how many it then has; counted as given from now on."""
        free = self._total
        for bound in self._bounds:
            if bound is None:
                return {}  # it may have any number of them
            free -= bound
        given = {}
        for index, target in enumerate(self._targets()):
            report, bound = self._reports[index], self._bounds[index]
            if report is None or bound is None:
                continue
            slots = min(target, bound + free) if free > 0 else 0
            if slots > max(report.slots, bound):
                free -= slots - bound
                self._bounds[index] = given[index] = slots
        return given

    def _targets(self) -> list[int]:
        return divided(self._total, [0 if r is None else r.demand for r in self._reports])
