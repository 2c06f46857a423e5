"""One prompt group before a judge that compares: who is compared, and what came of it."""

from __future__ import annotations

import asyncio
from collections import Counter

from zerowait.types import Abstain, FailureKind, Outcome, Sample, Skipped


class Contest:
    """One group before one judge: who is compared, who is not, and what came of it.

    Args:
        size: how many responses the group was to have.
        lost: how many of them are known not to come.
    """

    def __init__(self, size: int, lost: int = 0) -> None:
        self.size = size
        self.lost = lost
        self.entrants: dict[int, Sample] = {}
        self.others: dict[int, Outcome] = {}
        self.results: dict[int, Outcome] | None = None
        self._everybody = asyncio.Event()

    def report(self, index: int, sample: Sample, unwanted: Outcome | None) -> None:
        """Say that a member is compared, or why it is not. Who is compared stays so when it leaves.

        A member that left and comes again may yet be compared.
        """
        if unwanted is None:
            self.others.pop(index, None)
            self.entrants[index] = sample
        elif index not in self.entrants:
            self.others.setdefault(index, unwanted)
        self._look()

    def lose(self, count: int) -> None:
        """Say that so many members will not come."""
        self.lost += count
        self._look()

    def _look(self) -> None:
        if len(self.entrants) + len(self.others) + self.lost >= self.size:
            self._everybody.set()

    async def gathered(self, deadline_s: float) -> bool:
        """Whether everybody has said whether it is compared, within `deadline_s` seconds."""
        try:
            async with asyncio.timeout(deadline_s):
                await self._everybody.wait()
        except TimeoutError:
            return False
        return True

    def refusal(self, quorum: float, *, late: bool) -> Outcome | None:
        """Why nobody is compared, if so.

        A response whose siblings are not wanted (gates, data sources, a group of one) has nothing
        to be compared with, and is skipped. One whose siblings failed to come abstains.
        """
        wanted = self.size - sum(isinstance(other, Skipped) for other in self.others.values())
        here = len(self.entrants)
        if wanted < 2:
            return Skipped("there is no sibling to compare it with")
        if here >= 2 and here >= quorum * wanted:
            return None
        kinds = Counter(o.kind for o in self.others.values() if isinstance(o, Abstain))
        kinds.update({FailureKind.CANCELLED: self.lost} if self.lost else {})
        kind = FailureKind.TIMEOUT if late or not kinds else kinds.most_common(1)[0][0]
        return Abstain(kind, f"{here} of {wanted} responses of the group can be compared")
