"""The group's own components: penalties that need every sibling."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from zerowait.engine.groups import Group, Groups, Member
from zerowait.engine.plan import Plan, RuleStep, ShapeStep
from zerowait.errors import DataError
from zerowait.shaping import GroupView
from zerowait.types import Abstain, Outcome, Sample, Score, Skipped


class Shapes:
    """Brings the responses to one prompt together and shapes them."""

    def __init__(
        self, plan: Plan, *, deadline_s: float, count_tokens: Callable[[str], int] | None
    ) -> None:
        self._steps = plan.shapes
        self._rules = [s for s in plan.rules if isinstance(s, RuleStep) and s.factor != 0]
        self._needs_scores = any(step.shape.needs_scores for step in plan.shapes)
        self._groups = Groups()
        self._deadline_s = deadline_s
        self._count_tokens = count_tokens

    def __bool__(self) -> bool:
        return bool(self._steps)

    def check(self, sample: Sample, *, size: int | None) -> None:
        """Raise a DataError when the sample lacks what a shape needs."""
        if not self._steps:
            return
        shape, who = self._steps[0].name, f"sample {sample.id!r}" if sample.id else "a sample"
        if sample.response_tokens is None and self._count_tokens is None:
            raise DataError(
                f"{who} has no response_tokens, which the shape {shape!r} needs: "
                "set it to the number of tokens the model wrote, or give a tokenizer"
            )
        if sample.group is None:
            raise DataError(f"{who} has no group, which the shape {shape!r} needs")
        if size is None:
            raise DataError(
                f"{who} has no group_size, which the shape {shape!r} needs to know when its group "
                "is complete; set it, or score the whole list at once"
            )

    def enter(self, scope: Hashable, sample: Sample, size: int) -> tuple[Group, Member]:
        """The sample's place in its group."""
        assert sample.group is not None  # noqa: S101 - `check` has run
        try:
            return self._groups.enter(scope, sample.group, size, sample)
        except ValueError as error:
            raise DataError(str(error)) from None

    def leave(self, scope: Hashable, sample: Sample) -> None:
        """The sample needs its group no more."""
        if sample.group is not None:
            self._groups.leave(scope, sample.group)

    async def outcomes(
        self, group: Group, member: Member, known: Mapping[str, Outcome]
    ) -> dict[str, Outcome]:
        """Each shape's outcome for `member`, once its siblings are here."""
        group.judged(member, self._rule_score(known))
        late = await group.whole(scores=self._needs_scores, deadline_s=self._deadline_s)
        return {step.name: late or self._shape(step, group, member) for step in self._steps}

    def _shape(self, step: ShapeStep, group: Group, member: Member) -> Outcome:
        if step.sources and member.sample.data_source not in step.sources:
            return Skipped(f"not for data source {member.sample.data_source!r}")
        penalties = group.results.get(step.name)
        if penalties is None:
            penalties = group.results[step.name] = step.shape.penalties(self._view(group))
        return penalties[member.index]

    def _view(self, group: Group) -> GroupView:
        samples = [member.sample for member in group.members]
        return GroupView(
            lengths=[self._tokens(sample) for sample in samples],
            rule_scores=[member.rule_score for member in group.members],
            targets=[sample.extra.get("target_tokens") for sample in samples],
            responses=[sample.response for sample in samples],
        )

    def _tokens(self, sample: Sample) -> int:
        if sample.response_tokens is not None:
            return sample.response_tokens
        assert self._count_tokens is not None  # noqa: S101 - `check` has run
        return self._count_tokens(sample.response)

    def _rule_score(self, known: Mapping[str, Outcome]) -> float | None:
        """The weighted sum of the rules; None when one of them abstained."""
        total = 0.0
        for step in self._rules:
            outcome = known[step.name]
            if isinstance(outcome, Abstain):
                return None
            total += step.factor * outcome.value if isinstance(outcome, Score) else 0.0
        return total
