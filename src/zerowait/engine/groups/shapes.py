"""The group's own components: penalties that need every sibling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from zerowait.engine.groups.prompt_groups import Group, GroupMember, named
from zerowait.engine.plan import Plan, RuleStep, ShapeStep
from zerowait.errors import DataError
from zerowait.scorers import credit_of
from zerowait.shaping import GroupView, Penalties
from zerowait.types import Abstain, FailureKind, Outcome, Sample, Score, Skipped

_ROUNDING = 1e-9  # a column of 32 bits may miss its 1 by a little


class Tokenizer(Protocol):
    """Anything that can encode text, such as a transformers tokenizer."""

    def encode(self, text: str, /) -> Sequence[Any]:
        """The tokens of `text`."""


class Shapes:
    """Shapes the responses to one prompt, once they are together."""

    def __init__(
        self, plan: Plan, *, deadline_s: float, count_tokens: Callable[[str], int] | None
    ) -> None:
        self._steps = plan.shapes
        self._rules = [s for s in plan.rules if isinstance(s, RuleStep) and s.factor != 0]
        self._needs_scores = any(step.shape.needs_scores for step in plan.shapes)
        self._deadline_s = deadline_s
        self._count_tokens = count_tokens

    def check(self, sample: Sample) -> None:
        """Raise a DataError when the sample lacks what a shape needs."""
        if self._steps and sample.response_tokens is None and self._count_tokens is None:
            raise DataError(
                f"{named(sample)} has no response_tokens, which the shape "
                f"{self._steps[0].name!r} needs: "
                "set it to the number of tokens the model wrote, or give a tokenizer"
            )

    async def outcomes(self, seat: GroupMember, known: Mapping[str, Outcome]) -> dict[str, Outcome]:
        """Each shape's outcome for the sample at `seat`, once its siblings are here."""
        if not self._steps:
            return {}
        group, member = seat
        rule_score = self._rule_score(member.sample, known)
        if rule_score is not None and self._needs_scores:
            member.right = self._is_right(member.sample, known)
        group.judged(member, rule_score)
        late = await group.whole(scores=self._needs_scores, deadline_s=self._deadline_s)
        return {step.name: late or self._shape(step, seat) for step in self._steps}

    def _shape(self, step: ShapeStep, seat: GroupMember) -> Outcome:
        group, member = seat
        if step.sources and member.sample.data_source not in step.sources:
            return Skipped(f"not for data source {member.sample.data_source!r}")
        penalties = group.results.get(step.name)
        if penalties is None:
            penalties = group.results[step.name] = self._penalties(step, group)
        return penalties[member.index]

    def _penalties(self, step: ShapeStep, group: Group) -> Penalties:
        """The shape's outcomes; where it or the tokenizer raises, all members abstain."""
        try:
            return step.shape.penalties(self._view(group))
        except Exception as error:  # noqa: BLE001 - the tokenizer is somebody else's code
            why = f"shaping raised {type(error).__name__}: {error}"
            return [Abstain(FailureKind.CRASHED, why[:300]) for _ in group.members]

    def _view(self, group: Group) -> GroupView:
        samples = [member.sample for member in group.members]
        return GroupView(
            lengths=[self._tokens(sample) for sample in samples],
            rule_scores=[member.rule_score for member in group.members],
            rights=[
                None if member.rule_score is None else member.right for member in group.members
            ],
            targets=[sample.extra.get("target_tokens") for sample in samples],
            responses=[sample.response for sample in samples],
        )

    def _tokens(self, sample: Sample) -> int:
        if sample.response_tokens is not None:
            return sample.response_tokens
        assert self._count_tokens is not None  # noqa: S101 - `check` has run
        return self._count_tokens(sample.response)

    def _rule_score(self, sample: Sample, known: Mapping[str, Outcome]) -> float | None:
        """The weighted sum of the rules; None where one abstained, or none is for this sample."""
        source = sample.data_source
        rules = [step for step in self._rules if not step.sources or source in step.sources]
        if not rules:  # no rule said that the response is wrong
            return None
        total = 0.0
        for step in rules:
            outcome = known[step.name]
            if isinstance(outcome, Abstain):
                return None
            total += step.factor * outcome.value if isinstance(outcome, Score) else 0.0
        return total

    def _is_right(self, sample: Sample, known: Mapping[str, Outcome]) -> bool:
        """Whether the rules that know best gave their full score; no rule abstained.

        Rules that compare with the gold answer know better than the user's functions and columns,
        and those better than rules about the form: a bonus for the form makes no answer correct.
        """
        full: dict[str, list[bool]] = {}
        for step in self._rules:
            outcome = known[step.name]
            if not isinstance(outcome, Score) or step.factor < 0:
                continue
            credit = credit_of(step.target, sample, step.options)
            if credit is not None:
                full.setdefault(credit.shows, []).append(outcome.value >= credit.full - _ROUNDING)
        return all(full.get("answer") or full.get("number") or full.get("form") or [False])
