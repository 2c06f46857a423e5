"""Divides a job's slots among the shards of its hub, and hears of them all, anew each second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from zerowait.engine import Stats, StepRow
from zerowait.errors import ZerowaitError

FLOOR: Final = 1
"""Every shard begins with it, and keeps it: who waits there never waits for the next round only."""


class ShardLoad(msgspec.Struct, frozen=True, kw_only=True):
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


class SlotShares:
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
        self._reports: list[ShardLoad | None] = [None] * count
        self._bounds: list[int | None] = [None] * count

    def heard(self, index: int, report: ShardLoad) -> None:
        """The shard at `index` says how it stands."""
        self._reports[index] = report
        self._bounds[index] = max(report.slots, report.held)

    def gone(self, index: int) -> None:
        """The process of the shard at `index` is dead."""
        self.heard(index, ShardLoad(slots=FLOOR, held=0, demand=0))

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


PERIOD_S: Final = 1.0
SOON_S: Final = 0.1
_ANSWER_S: Final = 5.0


class GoneError(ZerowaitError):
    """The shard's process is dead, or was never started."""


class ShardMember(Protocol):
    """A shard, as the balance sees it."""

    async def report(self) -> ShardLoad:
        """How it stands.

        Raises:
            GoneError: its process is dead.
        """
        ...

    async def take(self, slots: int) -> ShardLoad:
        """How it stands with `slots` of its own; raises as `report` does."""
        ...


class SlotBalancer:
    """One round after the other; kept by the first shard.

    Args:
        total: slots of the job.
        count: of the shards.
    """

    def __init__(self, total: int, count: int) -> None:
        self._rows: list[StepRow] = []
        self._shares = SlotShares(total, count)
        self._count = count
        self._stats: dict[int, Stats] = {}

    def others(self) -> list[Stats]:
        """The latest statistics of all but the first shard."""
        return [stats for index, stats in self._stats.items() if index]

    async def run(
        self, members: Sequence[ShardMember], *, look: Callable[[Sequence[StepRow]], None]
    ) -> None:
        """Rounds until it is cancelled, in quick succession until every shard was heard of.

        Args:
            members: the shards in order.
            look: told after each round what all have gathered for the alarms about rewards.
        """
        while True:
            await self.round(members)
            rows, self._rows = self._rows, []
            look(rows)
            await asyncio.sleep(SOON_S if len(self._stats) < self._count else PERIOD_S)

    async def round(self, members: Sequence[ShardMember]) -> None:
        """Hear everybody, then take from those that have too much, then give.

        Args:
            members: the shards in order.
        """
        await self._all(members, dict.fromkeys(range(self._count)))
        await self._all(members, self._shares.to_take())
        await self._all(members, self._shares.to_give())

    async def _all(self, members: Sequence[ShardMember], calls: Mapping[int, int | None]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for index, slots in calls.items():
                tasks.create_task(self._call(members[index], index, slots))

    async def _call(self, member: ShardMember, index: int, slots: int | None) -> None:
        """One call of a member; one that does not answer keeps what it may have."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                report = await (member.report() if slots is None else member.take(slots))
        except GoneError:
            self._shares.gone(index)
        except (TimeoutError, ZerowaitError):
            return
        else:
            self._shares.heard(index, report)
            self._stats[index] = report.stats
            self._rows.extend(report.rows)
