"""Slots of a job shared among the shards of its hub: max-min fair, rebalanced each second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from zerowait.engine import JudgementCounts, Stats, StepRow
from zerowait.errors import ZerowaitError

MIN_SLOTS: Final = 1
"""Every shard starts with it and keeps it, so that no request has to wait for the next round."""
PERIOD_S: Final = 1.0
FIRST_PERIOD_S: Final = 0.1
"""Between rounds until every shard has answered once."""
_ANSWER_TIMEOUT_S: Final = 5.0


class ShardLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A shard's slots, demand and statistics at one moment.

    Args:
        slots: how many it has now.
        held: requests in flight; more than `slots` where some were just taken away.
        demand: how many slots it could use now: requests in flight and requests queued.
        stats: its statistics.
        rows: rows of rewards for the health alarms, since its last answer.
        judgements: how many failed, and whether one was reached, for ``traffic.give_up_after``.
    """

    slots: int
    held: int
    demand: int
    stats: Stats = Stats()
    rows: list[StepRow] = []
    judgements: JudgementCounts = JudgementCounts()


def fair_shares(total: int, demands: Sequence[int]) -> list[int]:
    """`total` slots shared among shards with these demands; the shares sum to `total`.

    Max-min fairness: no shard gets less than an equal part while another gets more than that. Each
    gets at least `MIN_SLOTS`, and slots beyond all demands are spread evenly.

    Raises:
        ValueError: there are more shards than slots.

    >>> fair_shares(32, [100, 4, 0]), fair_shares(32, [3, 0, 0, 1])
    ([27, 4, 1], [10, 8, 7, 7])
    """
    if len(demands) * MIN_SLOTS > total:
        raise ValueError(f"{total} slots are too few for {len(demands)} shards")
    wanted = [max(MIN_SLOTS, demand) for demand in demands]
    surplus = total - sum(wanted)
    if surplus >= 0:
        each, more = divmod(surplus, len(wanted))
        return [want + each + (index < more) for index, want in enumerate(wanted)]
    shares, left = [0] * len(wanted), total
    smallest_first = sorted(range(len(wanted)), key=wanted.__getitem__)
    for served, index in enumerate(smallest_first):
        shares[index] = min(wanted[index], left // (len(wanted) - served))
        left -= shares[index]
    return shares


class SlotShares:
    """Decides which shards return slots and which get more; never hands out more than `total`.

    For each shard it knows an upper bound of what it may use: its slots, or its requests in flight
    if those are more. Only slots that no bound covers are handed out. A silent shard keeps its
    bound. A dead one is counted with `MIN_SLOTS`, with which it starts again.

    Args:
        total: slots of the job.
        count: of the shards.
    """

    def __init__(self, total: int, count: int) -> None:
        self._total = total
        self._loads: list[ShardLoad | None] = [None] * count
        self._bounds: list[int | None] = [None] * count

    def update(self, index: int, load: ShardLoad) -> None:
        """Take in the load of the shard at `index`."""
        self._loads[index] = load
        self._bounds[index] = max(load.slots, load.held)

    def mark_dead(self, index: int) -> None:
        """The process of the shard at `index` is dead."""
        self.update(index, ShardLoad(slots=MIN_SLOTS, held=0, demand=0))

    def reductions(self) -> dict[int, int]:
        """The new number of slots of each shard that has to return some, by index."""
        targets = self._targets()
        loads = enumerate(self._loads)
        return {i: targets[i] for i, load in loads if load is not None and targets[i] < load.slots}

    def increases(self) -> dict[int, int]:
        """The new number of slots of each shard that gets more, by index; counted from now on."""
        free = self._total
        for bound in self._bounds:
            if bound is None:
                return {}  # a shard that has not answered yet may have any number of slots
            free -= bound
        increased = {}
        for index, target in enumerate(self._targets()):
            load, bound = self._loads[index], self._bounds[index]
            if load is None or bound is None:
                continue
            slots = min(target, bound + free) if free > 0 else 0
            if slots > max(load.slots, bound):
                free -= slots - bound
                self._bounds[index] = increased[index] = slots
        return increased

    def _targets(self) -> list[int]:
        return fair_shares(self._total, [0 if r is None else r.demand for r in self._loads])


class GoneError(ZerowaitError):
    """The shard's process is dead, or was never started."""


class ShardMember(Protocol):
    """A shard, as the balancer sees it."""

    async def current_load(self, others: JudgementCounts, /) -> ShardLoad:
        """Its load now.

        Args:
            others: the judgements of the other shards.

        Raises:
            GoneError: its process is dead.
        """
        ...

    async def set_slots(self, slots: int) -> ShardLoad:
        """Its load once it has `slots` slots; raises as `current_load` does."""
        ...


class SlotBalancer:
    """Balances slots in rounds, and gathers the shards' statistics; runs in the first shard.

    Args:
        total: slots of the job.
        count: of the shards.
    """

    def __init__(self, total: int, count: int) -> None:
        self._rows: list[StepRow] = []
        self._shares = SlotShares(total, count)
        self._count = count
        self._stats: dict[int, Stats] = {}
        self._judgements: dict[int, JudgementCounts] = {}

    def other_shards(self) -> list[Stats]:
        """The latest statistics of all but the first shard."""
        return [stats for index, stats in self._stats.items() if index]

    async def run(
        self, members: Sequence[ShardMember], *, check: Callable[[Sequence[StepRow]], None]
    ) -> None:
        """Run rounds until cancelled, in quick succession until every shard has answered.

        Args:
            members: the shards in order.
            check: called after each round with the rows that all shards have gathered.
        """
        while True:
            await self.round(members)
            rows, self._rows = self._rows, []
            check(rows)
            everyone_answered = len(self._stats) >= self._count
            await asyncio.sleep(PERIOD_S if everyone_answered else FIRST_PERIOD_S)

    async def round(self, members: Sequence[ShardMember]) -> None:
        """Ask all for their load, then take slots from those that have too many, then give.

        Args:
            members: the shards in order.
        """
        await self._call_all(members, dict.fromkeys(range(self._count)))
        await self._call_all(members, self._shares.reductions())
        await self._call_all(members, self._shares.increases())

    async def _call_all(
        self, members: Sequence[ShardMember], slots: Mapping[int, int | None]
    ) -> None:
        """Set the slots of shards by index; None asks for the load only."""
        async with asyncio.TaskGroup() as tasks:
            for index, new in slots.items():
                tasks.create_task(self._call(members[index], index, new))

    async def _call(self, member: ShardMember, index: int, slots: int | None) -> None:
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                load = await (
                    member.current_load(self._judgements_beside(index))
                    if slots is None
                    else member.set_slots(slots)
                )
        except GoneError:
            self._shares.mark_dead(index)
        except (TimeoutError, ZerowaitError):
            return  # it keeps its bound
        else:
            self._shares.update(index, load)
            self._stats[index] = load.stats
            self._judgements[index] = load.judgements
            self._rows.extend(load.rows)

    def _judgements_beside(self, index: int) -> JudgementCounts:
        """Those of all shards but the one at `index`."""
        others = [counts for other, counts in self._judgements.items() if other != index]
        failed = sum(counts.failed for counts in others)
        return JudgementCounts(failed, any(counts.reached for counts in others))
