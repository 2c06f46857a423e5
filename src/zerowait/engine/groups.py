"""Where the responses to one prompt meet, so that a shape sees all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence

from zerowait.types import Abstain, FailureKind, Outcome, Sample


class Member:
    """One sample's place in its group; `rule_score` is set once its own components are known."""

    def __init__(self, sample: Sample, index: int) -> None:
        self.sample = sample
        self.index = index
        self.rule_score: float | None = None
        self.judged = False


class Group:
    """The responses to one prompt, while they are being scored.

    Args:
        size: how many responses there will be.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.members: list[Member] = []
        self.results: dict[str, Sequence[Outcome]] = {}
        self._left = 0
        self._unjudged = size
        self._given_up = False
        self._complete = asyncio.Event()
        self._judged = asyncio.Event()

    def join(self, sample: Sample) -> Member:
        """The sample's place; the last one to come completes the group."""
        member = Member(sample, len(self.members))
        self.members.append(member)
        if len(self.members) == self.size:
            self._complete.set()
        return member

    def judged(self, member: Member, rule_score: float | None) -> None:
        """Tell the siblings that this member's own components are known."""
        if member.judged:
            return
        member.judged, member.rule_score = True, rule_score
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
            self._given_up = True
            here = len(self.members)
            return Abstain(
                FailureKind.TIMEOUT,
                f"{here} of {self.size} responses of the group came within {deadline_s:g} s",
            )
        return None

    def leave(self) -> bool:
        """Whether nobody needs this group any more."""
        self._left += 1
        expected = len(self.members) if self._given_up else self.size
        return self._left >= expected


class Groups:
    """The groups that are being scored at the moment.

    A group is known by a scope (one call, or the stream of single submissions) and its identity,
    so that two calls that score the same rows do not meet.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[Hashable, str], Group] = {}

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, scope: Hashable, name: str, size: int, sample: Sample) -> tuple[Group, Member]:
        """The sample's group and its place in it.

        Raises:
            ValueError: the group is full, or was opened with another size.
        """
        key = (scope, name)
        group = self._open.get(key)
        if group is None:
            group = self._open[key] = Group(size)
        if group.size != size or len(group.members) >= group.size:
            raise ValueError(
                f"group {name!r} was opened for {group.size} responses and has "
                f"{len(group.members)}; this one says {size}: group ids must be unique"
            )
        return group, group.join(sample)

    def leave(self, scope: Hashable, name: str) -> None:
        """Forget the group when its last member has left."""
        key = (scope, name)
        group = self._open.get(key)
        if group is not None and group.leave():
            del self._open[key]
