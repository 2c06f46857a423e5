"""Where the responses to one prompt meet before a judge that compares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from zerowait.cache import SingleFlight
from zerowait.engine.groups.comparer import GroupComparer
from zerowait.engine.groups.prompt_groups import Group, GroupComparison, GroupMember
from zerowait.engine.plan import ComparisonStep
from zerowait.types import Abstain, FailureKind, Outcome


class GroupComparisons:
    """Runs each group's comparison once, for all its members; opened with ``async with``.

    The comparison is a task of its own: a member that is cancelled leaves the others their result,
    and when the last one leaves it is cancelled.

    Args:
        steps: the components that compare.
        comparers: by judge.
        deadline_s: how long the first member waits for the others.
    """

    def __init__(
        self,
        steps: Sequence[ComparisonStep],
        comparers: Mapping[str, GroupComparer],
        *,
        deadline_s: float,
    ) -> None:
        self._steps = steps
        self._comparers = comparers
        self._deadline_s = deadline_s
        self._flights: SingleFlight[None] = SingleFlight()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the comparisons that run. Idempotent."""
        await self._flights.aclose()

    async def outcome(
        self, step: ComparisonStep, seat: GroupMember, unwanted: Outcome | None
    ) -> Outcome:
        """The member's outcome, once its siblings are here and compared.

        Args:
            step: the component.
            seat: the sample's place in its group.
            unwanted: why it is not compared; its siblings are told, and it does not wait.
        """
        group, member = seat
        contest = _contest(group, step)
        contest.report(member.index, member.sample, unwanted)
        if unwanted is not None:
            return unwanted
        if contest.results is None:
            await self._flights.run(str(id(contest)), lambda _: self._run(step, group, contest))
        assert contest.results is not None  # noqa: S101 - the flight has landed
        late = Abstain(FailureKind.TIMEOUT, "it came after its siblings had been compared")
        return contest.results.get(member.index, late)

    def left(self, seat: GroupMember) -> None:
        """Tell the siblings of a sample that has gone, where it had not said what it does."""
        for step in self._steps:
            gone = Abstain(FailureKind.CANCELLED, "nobody waits for it any more")
            _contest(seat.group, step).report(seat.member.index, seat.member.sample, gone)

    async def _run(self, step: ComparisonStep, group: Group, contest: GroupComparison) -> None:
        comparer = self._comparers[step.judge]
        late = not await contest.gathered(self._deadline_s)
        if late:
            group.give_up()
        refusal = contest.refusal(comparer.quorum, late=late)
        entrants = dict(contest.entrants)
        if refusal is not None:
            contest.results = dict.fromkeys(entrants, refusal)
            return
        outcomes = await comparer.group(list(entrants.values()), component=step.name)
        contest.results = dict(zip(entrants, outcomes, strict=True))


def _contest(group: Group, step: ComparisonStep) -> GroupComparison:
    contest = group.contests.get(step.name)
    if contest is None:
        contest = group.contests[step.name] = GroupComparison(
            group.announced, lost=group.announced - group.size
        )
    return contest
