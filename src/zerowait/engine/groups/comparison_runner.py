"""Runs the comparison of each prompt group once, for all of its members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from zerowait.cache import SingleFlight
from zerowait.engine.groups.comparer import GroupComparer
from zerowait.engine.groups.comparison import GroupComparison
from zerowait.engine.groups.prompt_groups import GroupMember, PromptGroup
from zerowait.engine.plan import ComparisonStep
from zerowait.events import SAMPLE_UIDS
from zerowait.types import Abstain, FailureKind, Outcome


class ComparisonRunner:
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
        """Cancel the comparisons that run. Idempotent."""
        await self._flights.aclose()

    async def outcome(
        self, step: ComparisonStep, member: GroupMember, excluded: Outcome | None
    ) -> Outcome:
        """The member's outcome, once its siblings are here and compared.

        Args:
            step: the component.
            member: the sample in its group.
            excluded: why it is not compared; its siblings are told, and it does not wait.
        """
        comparison = _comparison(member.group, step)
        comparison.report(member.index, member.sample, excluded)
        if excluded is not None:
            return excluded
        if comparison.outcomes is None:
            await self._flights.run(
                str(id(comparison)), lambda _: self._run(step, member.group, comparison)
            )
        assert comparison.outcomes is not None  # noqa: S101 - the flight has landed
        late = Abstain(FailureKind.TIMEOUT, "it came after its siblings had been compared")
        return comparison.outcomes.get(member.index, late)

    def leave(self, member: GroupMember) -> None:
        """Exclude a member that has left from the comparisons to which it has not reported."""
        for step in self._steps:
            gone = Abstain(FailureKind.CANCELLED, "no caller waits for it any more")
            _comparison(member.group, step).report(member.index, member.sample, gone)

    async def _run(
        self, step: ComparisonStep, group: PromptGroup, comparison: GroupComparison
    ) -> None:
        comparer = self._comparers[step.judge]
        late = not await comparison.complete(self._deadline_s)
        if late:
            group.give_up()
        unmet_quorum = comparison.unmet_quorum(comparer.quorum, late=late)
        compared = dict(comparison.compared)
        if unmet_quorum is not None:
            comparison.outcomes = dict.fromkeys(compared, unmet_quorum)
            return
        members = (group.members[index] for index in compared)
        SAMPLE_UIDS.set(tuple(uid for member in members for uid in member.uids))
        outcomes = await comparer.compare(list(compared.values()), component=step.name)
        comparison.outcomes = dict(zip(compared, outcomes, strict=True))


def _comparison(group: PromptGroup, step: ComparisonStep) -> GroupComparison:
    comparison = group.comparisons.get(step.name)
    if comparison is None:
        comparison = group.comparisons[step.name] = GroupComparison(
            group.announced, missing=group.announced - group.size
        )
    return comparison
