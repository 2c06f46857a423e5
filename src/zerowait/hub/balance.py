"""Divides a job's slots among the shards of its hub, and hears of them all, anew each second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from zerowait.engine import Stats, StepRow
from zerowait.errors import ZerowaitError
from zerowait.hub.shares import Report, Shares

PERIOD_S: Final = 1.0
SOON_S: Final = 0.1
_ANSWER_S: Final = 5.0


class GoneError(ZerowaitError):
    """The shard's process is dead, or was never started."""


class Member(Protocol):
    """A shard, as the balance sees it."""

    async def report(self) -> Report:
        """How it stands.

        Raises:
            GoneError: its process is dead.
        """
        ...

    async def take(self, slots: int) -> Report:
        """How it stands with `slots` of its own; raises as `report` does."""
        ...


class Balance:
    """One round after the other; kept by the first shard.

    Args:
        total: slots of the job.
        count: of the shards.
    """

    def __init__(self, total: int, count: int) -> None:
        self._rows: list[StepRow] = []
        self._shares = Shares(total, count)
        self._count = count
        self._stats: dict[int, Stats] = {}

    def others(self) -> list[Stats]:
        """The latest statistics of all but the first shard."""
        return [stats for index, stats in self._stats.items() if index]

    async def run(
        self, members: Sequence[Member], *, look: Callable[[Sequence[StepRow]], None]
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

    async def round(self, members: Sequence[Member]) -> None:
        """Hear everybody, then take from those that have too much, then give.

        Args:
            members: the shards in order.
        """
        await self._all(members, dict.fromkeys(range(self._count)))
        await self._all(members, self._shares.to_take())
        await self._all(members, self._shares.to_give())

    async def _all(self, members: Sequence[Member], calls: Mapping[int, int | None]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for index, slots in calls.items():
                tasks.create_task(self._call(members[index], index, slots))

    async def _call(self, member: Member, index: int, slots: int | None) -> None:
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
