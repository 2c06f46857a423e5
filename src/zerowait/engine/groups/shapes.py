"""Shape components: penalties over a prompt group, computed when all siblings are here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from zerowait.engine.groups.prompt_groups import GroupMember, PromptGroup, sample_name
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
    """Computes the shapes of each prompt group, once all of its members are here.

    Args:
        plan: has the shapes, and the rules whose scores they look at.
        deadline_s: how long a member waits for its siblings.
        count_tokens: for samples without ``response_tokens``; None: they are a DataError.
    """

    def __init__(
        self, plan: Plan, *, deadline_s: float, count_tokens: Callable[[str], int] | None
    ) -> None:
        self._steps = plan.shapes
        self._rules = [s for s in plan.steps if isinstance(s, RuleStep) and s.factor != 0]
        self._needs_scores = any(step.shape.needs_scores for step in plan.shapes)
        self._deadline_s = deadline_s
        self._count_tokens = count_tokens

    def check(self, sample: Sample) -> None:
        """Raise a DataError when the sample lacks what a shape needs."""
        if self._steps and sample.response_tokens is None and self._count_tokens is None:
            raise DataError(
                f"{sample_name(sample)} has no response_tokens, which the shape "
                f"{self._steps[0].name!r} needs: "
                "set it to the number of tokens the model wrote, or give zerowait.open a tokenizer"
            )

    async def outcomes(
        self, member: GroupMember, known: Mapping[str, Outcome]
    ) -> dict[str, Outcome]:
        """Each shape's outcome for `member`, once its siblings are here.

        Args:
            member: the sample in its group.
            known: outcomes of its own components, by name.
        """
        if not self._steps:
            return {}
        rule_score = self._rule_score(member.sample, known)
        if rule_score is not None and self._needs_scores:
            member.is_correct = self._is_correct(member.sample, known)
        member.group.set_rules_known(member, rule_score)
        late = await member.group.wait_complete(
            scores=self._needs_scores, deadline_s=self._deadline_s
        )
        return {step.name: late or self._outcome(step, member) for step in self._steps}

    def _outcome(self, step: ShapeStep, member: GroupMember) -> Outcome:
        if step.sources and member.sample.data_source not in step.sources:
            return Skipped(f"not for data source {member.sample.data_source!r}")
        computed = member.group.shape_outcomes
        penalties = computed.get(step.name)
        if penalties is None:
            penalties = computed[step.name] = self._penalties(step, member.group)
        return penalties[member.index]

    def _penalties(self, step: ShapeStep, group: PromptGroup) -> Penalties:
        """The shape's outcomes; where it or the tokenizer raises, all members abstain."""
        try:
            return step.shape.penalties(self._view(group))
        except Exception as error:  # noqa: BLE001 - the tokenizer is foreign code
            why = f"shaping raised {type(error).__name__}: {error}"
            return [Abstain(FailureKind.CRASHED, why[:300]) for _ in group.members]

    def _view(self, group: PromptGroup) -> GroupView:
        samples = [member.sample for member in group.members]
        return GroupView(
            lengths=[self._tokens(sample) for sample in samples],
            rule_scores=[member.rule_score for member in group.members],
            rights=[
                None if member.rule_score is None else member.is_correct for member in group.members
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

    def _is_correct(self, sample: Sample, known: Mapping[str, Outcome]) -> bool:
        """Whether the most reliable rules all gave their full score; no rule abstained.

        Rules that compare with the gold answer are more reliable than the user's functions and
        columns, and those than rules about the form: a bonus for the form makes no answer correct.
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
