"""From one sample to one verdict: the calls of a judge's procedure, or the members of a panel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from zerowait.config import Panel
from zerowait.engine.concurrent_tasks import side_by_side
from zerowait.engine.judging.cached_judge import CachedJudge
from zerowait.errors import DataError
from zerowait.judge import (
    Procedure,
    monitored,
    panel_outcome,
    row_calls,
    row_rubric,
    rubric_outcome,
    seen_by,
    to_unit,
    truth_of,
    votes_outcome,
    weighted,
    whole_outcome,
    whole_question,
)
from zerowait.types import Abstain, FailureKind, Outcome, Sample, Score


class JudgeRunner(Protocol):
    """Reaches verdicts on samples: a judge or a panel."""

    async def judge(self, sample: Sample, *, component: str = "") -> Outcome:
        """The verdict on `sample`, or why there is none; raises nothing of its own."""


class SingleJudgeRunner:
    """Runs the procedure of one judge; each of its calls has its own key in the cache."""

    def __init__(self, judge: CachedJudge, procedure: Procedure) -> None:
        self._judge = judge
        self._procedure = procedure
        steps = (procedure.votes, procedure.monitor)
        plain = steps == (None, None) and not (procedure.apart or procedure.of_row)
        self._only = procedure.questions[0] if plain else None

    async def judge(self, sample: Sample, *, component: str = "") -> Outcome:
        """The verdict on `sample`, or why there is none."""
        if self._only is not None:
            return await self._judge.ask(sample, self._only, component=component)
        monitor = self._procedure.monitor
        if monitor is None:
            return await self._verdict(sample, component)
        truth = truth_of(sample, monitor)
        if isinstance(truth, Abstain):
            return truth
        outcome = await self._verdict(seen_by(sample, monitor), component)
        return monitored(outcome, monitor, truth=truth)

    async def _verdict(self, sample: Sample, component: str) -> Outcome:
        votes = self._procedure.votes
        if votes is None:
            return await self._once(sample, 0, component)
        outcomes = await side_by_side(
            self._once(sample, vote, component) for vote in range(votes.n)
        )
        return votes_outcome(outcomes, votes)

    async def _once(self, sample: Sample, vote: int, component: str) -> Outcome:
        ask, procedure = self._judge.ask, self._procedure
        if procedure.of_row:
            return await self._by_row(sample, vote, component)
        if not procedure.apart:
            return await ask(sample, procedure.questions[0], vote=vote, component=component)
        outcomes = await side_by_side(
            ask(sample, question, vote=vote, component=component)
            for question in procedure.questions
        )
        names = [criterion.name for criterion in procedure.criteria]
        return weighted(procedure.criteria, dict(zip(names, outcomes, strict=True)))

    async def _by_row(self, sample: Sample, vote: int, component: str) -> Outcome:
        """The verdict by the criteria that `sample` brings along, all of its calls at once."""
        ask, judge = self._judge.ask, self._judge.config
        try:
            criteria = row_rubric(sample, judge.verdict)
        except DataError as error:
            return Abstain(FailureKind.BAD_INPUT, str(error))
        if judge.verdict.aggregation == "implicit":
            question = whole_question(judge, self._judge.rubric, criteria)
            return whole_outcome(await ask(sample, question, vote=vote, component=component))
        calls = row_calls(judge, self._judge.rubric, criteria)
        outcomes = await side_by_side(
            ask(sample, call.question, vote=vote, component=component) for call in calls
        )
        return rubric_outcome(criteria, list(zip(calls, outcomes, strict=True)), judge.verdict)


class PanelRunner:
    """Runs several judges at once, each by its own procedure, and pools their verdicts.

    Args:
        panel: its members, and how their verdicts are pooled.
        judges: all judges, by name.
        bounds: of each member's verdict, where they are normalised.
    """

    def __init__(
        self,
        panel: Panel,
        judges: Mapping[str, JudgeRunner],
        bounds: Mapping[str, tuple[float, float]],
    ) -> None:
        self._panel = panel
        self._members = {name: judges[name] for name in panel.members}
        self._bounds = bounds if panel.normalize else {}

    async def judge(self, sample: Sample, *, component: str = "") -> Outcome:
        """The panel's verdict on `sample`, or why there is none."""
        outcomes = await side_by_side(
            member.judge(sample, component=component) for member in self._members.values()
        )
        verdicts = {
            name: in_unit(outcome, self._bounds.get(name))
            for name, outcome in zip(self._members, outcomes, strict=True)
        }
        return panel_outcome(verdicts, self._panel)


def in_unit(outcome: Outcome, bounds: tuple[float, float] | None) -> Outcome:
    """`outcome` with its value mapped from `bounds` to [0, 1]; unchanged without them."""
    if bounds is None or not isinstance(outcome, Score):
        return outcome
    return msgspec.structs.replace(outcome, value=to_unit(outcome.value, bounds))
