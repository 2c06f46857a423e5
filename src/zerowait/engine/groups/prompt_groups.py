"""Prompt groups: the responses to one prompt, so that shapes and judges see all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from typing import Final

from zerowait.engine.groups.comparison import GroupComparison
from zerowait.errors import DataError
from zerowait.types import Abstain, FailureKind, Outcome, Sample

STREAM: Final = "stream"
"""The batch to which all single submissions belong."""


class GroupMember:
    """One sample in its prompt group.

    Attributes:
        group: the sample and its siblings.
        sample: what is scored.
        index: in the group, from 0 on.
        rule_score: the weighted sum of the rules, once they are known; None where one abstained.
        is_correct: whether the rules say that the response is correct, once they are known.
        rules_known: whether its own components are known.
        has_left: whether no caller waits for it any more.
        is_finished: whether it got its outcome before it left.
        uids: its names in the run's record; empty without one.
    """

    def __init__(self, group: PromptGroup, sample: Sample, index: int) -> None:
        self.group = group
        self.sample = sample
        self.index = index
        self.rule_score: float | None = None
        self.is_correct: bool | None = None
        self.rules_known = False
        self.has_left = False
        self.is_finished = False
        self.uids: tuple[str, ...] = ()


class PromptGroup:
    """The responses to one prompt, while they are being scored.

    Args:
        size: how many responses there will be.

    Attributes:
        announced: the size that the first member gave.
        size: how many members there will be; less than `announced` when some will not come.
        members: those that have come, in order.
        shape_outcomes: of all members, by shape component.
        comparisons: by the component that compares.
    """

    def __init__(self, size: int) -> None:
        self.announced = self.size = size
        self.members: list[GroupMember] = []
        self.shape_outcomes: dict[str, Sequence[Outcome]] = {}
        self.comparisons: dict[str, GroupComparison] = {}
        self._unscored = size
        self._given_up = False
        self._complete = asyncio.Event()
        self._scored = asyncio.Event()

    def join(self, sample: Sample) -> GroupMember | None:
        """The new member; None when the group is full.

        A sample that was given up and is submitted again (its process lost the hub) becomes its old
        member, and in a full group so does one that had its outcome.
        """
        full = len(self.members) >= self.size
        for member in self.members:
            may_return = member.has_left and (full or not member.is_finished)
            old = member.sample
            if may_return and (old.id, old.response) == (sample.id, sample.response):
                member.has_left = member.is_finished = False
                return member
        if full:
            return None
        member = GroupMember(self, sample, len(self.members))
        self.members.append(member)
        if len(self.members) == self.size:
            self._complete.set()
        return member

    def set_rules_known(self, member: GroupMember, rule_score: float | None) -> None:
        """Note that a member's own components are known, or will not be."""
        if rule_score is not None:
            member.rule_score = rule_score
        if member.rules_known:
            return
        member.rules_known = True
        self._unscored -= 1
        if self._unscored == 0:
            self._scored.set()

    async def wait_complete(self, *, scores: bool, deadline_s: float) -> Abstain | None:
        """None once every sibling is here; an abstention where that takes too long.

        Args:
            scores: also wait until every sibling's own components are known.
            deadline_s: from now on.
        """
        event = self._scored if scores else self._complete
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

    def shrink(self, size: int) -> bool:
        """Expect no more than `size` members; whether the group is not needed any more.

        The size never falls below the number of members that are here.
        """
        size = max(size, len(self.members))
        missing = self.size - size
        if missing > 0:
            self.size = size
            self._unscored -= missing
            for comparison in self.comparisons.values():
                comparison.lose(missing)
        if len(self.members) == self.size:
            self._complete.set()
        if not self._unscored:
            self._scored.set()
        return all(member.has_left for member in self.members) and len(self.members) == self.size

    def give_up(self) -> None:
        """Stop waiting for members that are not here yet."""
        self._given_up = True

    def leave(self, member: GroupMember, *, finished: bool) -> bool:
        """Note that `member` leaves; whether the group is not needed any more."""
        member.has_left, member.is_finished = True, finished
        expected = len(self.members) if self._given_up else self.size
        return sum(member.has_left for member in self.members) >= expected


class PromptGroups:
    """The groups that are being scored at the moment.

    A group is known by its batch (one call of ``score_all``, or `STREAM`) and the ``group`` of its
    samples, so that two calls which score the same rows share no group.

    Args:
        needed_by: the first component that needs groups; empty when none does.
    """

    def __init__(self, needed_by: str) -> None:
        self.needed_by = needed_by
        self._open: dict[tuple[Hashable, str | None], PromptGroup] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __bool__(self) -> bool:
        """Whether any component needs groups."""
        return bool(self.needed_by)

    def check(self, sample: Sample, *, size: int | None) -> None:
        """Raise a DataError when the sample does not say which group it belongs to."""
        if not self.needed_by:
            return
        need = f"which the component {self.needed_by!r} needs"
        if sample.group is None:
            raise DataError(f"{sample_name(sample)} has no group, {need}")
        if size is None:
            raise DataError(
                f"{sample_name(sample)} has no group_size, {need} to know when its group is "
                "complete; set it, or score the whole list at once"
            )

    def join(self, batch: Hashable, sample: Sample, size: int) -> GroupMember:
        """The sample as a member of its group, which is opened by its first member.

        Args:
            batch: the call that scores the sample, or `STREAM`.
            sample: its ``group`` names the group.
            size: how many members the group has.

        Raises:
            DataError: the group is full, or was opened with another size.
        """
        key = (batch, sample.group)
        group = self._open.get(key)
        if group is None:
            group = self._open[key] = PromptGroup(size)
        member = group.join(sample) if size in (group.size, group.announced) else None
        if member is not None:
            return member
        raise DataError(
            f"group {sample.group!r} was opened for {group.announced} responses and has "
            f"{len(group.members)}; this one says {size}: group ids must be unique"
        )

    def shrink(self, name: str, size: int) -> None:
        """Expect no more than `size` single submissions of the group called `name`."""
        group = self._open.get((STREAM, name))
        if group is not None and group.shrink(size):
            del self._open[STREAM, name]

    def leave(self, batch: Hashable, member: GroupMember, *, finished: bool) -> None:
        """Note that `member` leaves; the group is forgotten when it is not needed any more.

        Args:
            batch: as given to `join`.
            member: what `join` returned.
            finished: whether it got its outcome.
        """
        key = (batch, member.sample.group)
        is_over = member.group.leave(member, finished=finished)
        if is_over and self._open.get(key) is member.group:
            del self._open[key]


def sample_name(sample: Sample) -> str:
    """The sample as error messages call it."""
    return f"sample {sample.id!r}" if sample.id else "a sample"


def group_by_group(rows: Sequence[Sample]) -> list[int]:
    """The rows' indices with siblings next to each other.

    A bounded number of tasks then never splits a group into members that wait for siblings and
    siblings that cannot start.
    """
    first: dict[str, int] = {}
    keys = []
    for index, row in enumerate(rows):
        keys.append(index if row.group is None else first.setdefault(row.group, index))
    return sorted(range(len(rows)), key=keys.__getitem__)
