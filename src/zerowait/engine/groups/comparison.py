"""The comparison of one prompt group's responses by one judge: who takes part, and the results."""

from __future__ import annotations

import asyncio
from collections import Counter

from zerowait.types import Abstain, FailureKind, Outcome, Sample, Skipped


class GroupComparison:
    """State of one comparison: who is compared, who is not and why, and the outcomes.

    Args:
        size: how many responses the group was announced with.
        missing: how many of them are known not to come.

    Attributes:
        compared: sample by index in the group.
        excluded: why a member is not compared, by index in the group.
        outcomes: of each compared member, by index; None until the judge has compared them.
    """

    def __init__(self, size: int, missing: int = 0) -> None:
        self.size = size
        self.missing = missing
        self.compared: dict[int, Sample] = {}
        self.excluded: dict[int, Outcome] = {}
        self.outcomes: dict[int, Outcome] | None = None
        self._complete = asyncio.Event()

    def report(self, index: int, sample: Sample, excluded: Outcome | None) -> None:
        """Note that a member is compared, or why it is not.

        A compared member stays one when it leaves. An excluded one that is submitted again may yet
        be compared.

        Args:
            index: of the member in its group.
            sample: the member's sample.
            excluded: why it is not compared; None: it is.
        """
        if excluded is None:
            self.excluded.pop(index, None)
            self.compared[index] = sample
        elif index not in self.compared:
            self.excluded.setdefault(index, excluded)
        self._check_complete()

    def lose(self, count: int) -> None:
        """Note that `count` members will not come."""
        self.missing += count
        self._check_complete()

    def _check_complete(self) -> None:
        if len(self.compared) + len(self.excluded) + self.missing >= self.size:
            self._complete.set()

    async def complete(self, deadline_s: float) -> bool:
        """Wait until every member has reported; False if that takes over `deadline_s` seconds."""
        try:
            async with asyncio.timeout(deadline_s):
                await self._complete.wait()
        except TimeoutError:
            return False
        return True

    def unmet_quorum(self, quorum: float, *, late: bool) -> Outcome | None:
        """Why the judge is not asked; None if it is.

        A response whose siblings are not wanted (gates, data sources, a group of one) has nothing
        to be compared with, and is skipped. One whose siblings failed to come abstains.

        Args:
            quorum: the share of the wanted responses that must be there, in (0, 1].
            late: whether the deadline has passed.
        """
        wanted = self.size - sum(isinstance(other, Skipped) for other in self.excluded.values())
        here = len(self.compared)
        if wanted < 2:
            return Skipped("there is no sibling to compare it with")
        if here >= 2 and here >= quorum * wanted:
            return None
        kinds = Counter(o.kind for o in self.excluded.values() if isinstance(o, Abstain))
        kinds.update({FailureKind.CANCELLED: self.missing} if self.missing else {})
        kind = FailureKind.TIMEOUT if late or not kinds else kinds.most_common(1)[0][0]
        return Abstain(kind, f"{here} of {wanted} responses of the group can be compared")
