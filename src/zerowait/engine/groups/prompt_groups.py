"""Where the responses to one prompt meet, so that shapes and judges see all of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from zerowait.errors import DataError
from zerowait.types import Abstain, FailureKind, Outcome, Sample, Skipped


class GroupComparison:
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


STREAM: Final = "stream"
"""The scope of single submissions."""


class GroupRow:
    """One sample's place in its group.

    `rule_score`, and `right` (whether the rules say that it is correct), are set once its own
    components are known.

    It has `left` when nobody waits for it any more, and `finished` if it got its outcome.
    """

    def __init__(self, sample: Sample, index: int) -> None:
        self.sample = sample
        self.index = index
        self.rule_score: float | None = None
        self.right: bool | None = None
        self.judged = False
        self.left = False
        self.finished = False


class Group:
    """The responses to one prompt, while they are being scored.

    Args:
        size: how many responses there will be.
    """

    def __init__(self, size: int) -> None:
        self.announced = self.size = size
        self.members: list[GroupRow] = []
        self.results: dict[str, Sequence[Outcome]] = {}
        self.contests: dict[str, GroupComparison] = {}
        self._unjudged = size
        self._given_up = False
        self._complete = asyncio.Event()
        self._judged = asyncio.Event()

    def join(self, sample: Sample) -> GroupRow | None:
        """The sample's place; the last one to come completes the group.

        A sample that was given up and is handed in again (its process lost the hub) gets its old
        place, and in a full group so does one that had its outcome.

        None when the group is full.
        """
        full = len(self.members) >= self.size
        for member in self.members:
            may_return = member.left and (full or not member.finished)
            old = member.sample
            if may_return and (old.id, old.response) == (sample.id, sample.response):
                member.left = member.finished = False
                return member
        if full:
            return None
        member = GroupRow(sample, len(self.members))
        self.members.append(member)
        if len(self.members) == self.size:
            self._complete.set()
        return member

    def judged(self, member: GroupRow, rule_score: float | None) -> None:
        """Tell the siblings that this member's own components are known."""
        if rule_score is not None:
            member.rule_score = rule_score
        if member.judged:
            return
        member.judged = True
        self._unjudged -= 1
        if self._unjudged == 0:
            self._judged.set()

    async def whole(self, *, scores: bool, deadline_s: float) -> Abstain | None:
        """None when every sibling is here (and judged, if `scores`); an abstention if too late."""
        event = self._judged if scores else self._complete
        if event.is_set():
            return None
        try:
            async with asyncio.timeout(deadline_s):
                await event.wait()
        except TimeoutError:
            self.give_up()
            here = len(self.members)
            return Abstain(
                FailureKind.TIMEOUT,
                f"{here} of {self.size} responses of the group came within {deadline_s:g} s",
            )
        return None

    def expect(self, size: int) -> bool:
        """Tell that no more than `size` siblings will come; whether nobody needs the group now.

        Those who are here are the group then, and wait for nobody else.
        """
        size = max(size, len(self.members))
        missing = self.size - size
        if missing > 0:
            self.size = size
            self._unjudged -= missing
            for contest in self.contests.values():
                contest.lose(missing)
        if len(self.members) == self.size:
            self._complete.set()
        if not self._unjudged:
            self._judged.set()
        return all(member.left for member in self.members) and len(self.members) == self.size

    def give_up(self) -> None:
        """Whoever is not here by now is not waited for."""
        self._given_up = True

    def leave(self, member: GroupRow, *, finished: bool) -> bool:
        """Whether nobody needs this group any more, now that `member` goes."""
        member.left, member.finished = True, finished
        expected = len(self.members) if self._given_up else self.size
        return sum(member.left for member in self.members) >= expected


class GroupMember(NamedTuple):
    """A sample's place among its siblings."""

    group: Group
    member: GroupRow


class Groups:
    """The groups that are being scored at the moment.

    A group is known by a scope (one call, or the stream of single submissions) and its identity,
    so that two calls that score the same rows do not meet.

    Args:
        needed_by: the component that needs groups; empty when none does.
    """

    def __init__(self, needed_by: str) -> None:
        self._needed_by = needed_by
        self._open: dict[tuple[Hashable, str | None], Group] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __bool__(self) -> bool:
        """Whether any component needs groups."""
        return bool(self._needed_by)

    def check(self, sample: Sample, *, size: int | None) -> None:
        """Raise a DataError when the sample does not say which group it belongs to."""
        if not self._needed_by:
            return
        need = f"which the component {self._needed_by!r} needs"
        if sample.group is None:
            raise DataError(f"{named(sample)} has no group, {need}")
        if size is None:
            raise DataError(
                f"{named(sample)} has no group_size, {need} to know when its group is complete; "
                "set it, or score the whole list at once"
            )

    def enter(self, scope: Hashable, sample: Sample, size: int) -> GroupMember:
        """The sample's place in its group.

        Raises:
            DataError: the group is full, or was opened with another size.
        """
        key = (scope, sample.group)
        group = self._open.get(key)
        if group is None:
            group = self._open[key] = Group(size)
        member = group.join(sample) if size in (group.size, group.announced) else None
        if member is not None:
            return GroupMember(group, member)
        raise DataError(
            f"group {sample.group!r} was opened for {group.announced} responses and has "
            f"{len(group.members)}; this one says {size}: group ids must be unique"
        )

    def expect(self, name: str, size: int) -> None:
        """Tell the single submissions of a group that no more than `size` of them will come."""
        group = self._open.get((STREAM, name))
        if group is not None and group.expect(size):
            del self._open[STREAM, name]

    def leave(self, scope: Hashable, seat: GroupMember, *, finished: bool) -> None:
        """Forget the group when its last member has left."""
        key = (scope, seat.member.sample.group)
        if seat.group.leave(seat.member, finished=finished) and self._open.get(key) is seat.group:
            del self._open[key]


def named(sample: Sample) -> str:
    """The sample, for a message to people."""
    return f"sample {sample.id!r}" if sample.id else "a sample"
