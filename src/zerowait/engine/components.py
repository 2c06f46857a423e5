"""Runs the components of one sample: rules in place or in the worker pool, judges, comparisons."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from zerowait.config import Aggregate
from zerowait.config.checks import seconds as checked_seconds
from zerowait.engine.concurrent_tasks import side_by_side
from zerowait.engine.gate import Gate, gate_closed
from zerowait.engine.groups.comparison_runner import ComparisonRunner
from zerowait.engine.groups.prompt_groups import GroupMember
from zerowait.engine.judging.runner import JudgeRunner, in_unit
from zerowait.engine.monitor.stall_watchdog import PendingWork
from zerowait.engine.plan import ComparisonStep, JudgeStep, Plan, RuleStep
from zerowait.engine.pool.scorer_pool import ScorerPool
from zerowait.engine.sandbox.scoring import CodeScoring
from zerowait.engine.turns import outcome_of_turns, samples_of_turns
from zerowait.scorers import needs_pool, resolve, selected
from zerowait.types import Abstain, FailureKind, Outcome, Sample, Skipped

Step: TypeAlias = RuleStep | JudgeStep | ComparisonStep


class Deadline(NamedTuple):
    """When waiting ends: `at` on the loop's clock, `within_s` after it began."""

    at: float
    within_s: float

    @classmethod
    def in_s(cls, seconds: float) -> Deadline:
        """So many seconds from now, on the running loop.

        Raises:
            ConfigError: they are no number above 0.
        """
        seconds = checked_seconds("deadline_s", seconds)
        return cls(asyncio.get_running_loop().time() + seconds, seconds)

    async def then_abstain(self, outcome: Coroutine[Any, Any, Outcome]) -> Outcome:
        """The outcome, or an abstention where it is not there in time."""
        try:
            async with asyncio.timeout_at(self.at):
                return await outcome
        except TimeoutError:
            why = f"not known {self.within_s:g} s after the batch began"
            return Abstain(FailureKind.TIMEOUT, why)


class _Row(NamedTuple):
    """A sample whose components run; see `ComponentRunner.outcomes`."""

    sample: Sample
    member: GroupMember | None
    until: Deadline | None
    turns: dict[str, list[Outcome]]


class ComponentRunner:
    """Runs the plan's components of each sample, at once where they may overlap.

    Args:
        plan: the components, in an order in which gates find what they need.
        judges: of single samples, by name.
        comparisons: compares the responses of a prompt group.
        pool: runs users' functions.
        code: runs the programs of responses.
        pending: keeps what is waited for.
    """

    def __init__(
        self,
        plan: Plan,
        judges: Mapping[str, JudgeRunner],
        comparisons: ComparisonRunner,
        pool: ScorerPool,
        *,
        code: CodeScoring,
        pending: PendingWork,
    ) -> None:
        self._pending = pending
        self._steps = plan.steps
        self._judges = judges
        self._comparisons = comparisons
        self._pool = pool
        self._code = code
        self._by_row = any(map(_is_by_row, plan.steps))
        self._slow = sum(map(_is_slow, plan.steps))

    async def outcomes(
        self,
        sample: Sample,
        member: GroupMember | None = None,
        until: Deadline | None = None,
        turns: dict[str, list[Outcome]] | None = None,
    ) -> dict[str, Outcome]:
        """Each component's outcome for `sample`; raises nothing of its own.

        Args:
            sample: what is rewarded.
            member: the sample in its prompt group, where the plan compares siblings.
            until: when a component that is not known yet abstains; None: never.
            turns: receives the outcomes on each turn of the components that judge turns.
        """
        row = _Row(sample, member, until, {} if turns is None else turns)
        steps, slow = self._steps, self._slow
        if self._by_row:
            steps = [_for_row(step, sample) for step in steps]
            slow = sum(map(_is_slow, steps))
        if slow > 1:
            return await self._all_at_once(steps, row)
        outcomes: dict[str, Outcome] = {}
        for step in steps:
            outcomes[step.name] = await self._run(step, row, outcomes)
        return outcomes

    def leave(self, member: GroupMember) -> None:
        """Tell the siblings of `member` that no caller waits for it any more."""
        self._comparisons.leave(member)

    async def _all_at_once(self, steps: Sequence[Step], row: _Row) -> dict[str, Outcome]:
        tasks: dict[str, asyncio.Task[Outcome]] = {}

        async def when_gate_is_known(step: Step) -> Outcome:
            needed = step.gate.names if step.gate else ()
            known = {name: await tasks[name] for name in needed}
            return await self._run(step, row, known)

        async with asyncio.TaskGroup() as group:
            for step in steps:
                tasks[step.name] = group.create_task(when_gate_is_known(step))
        return {name: task.result() for name, task in tasks.items()}

    async def _run(self, step: Step, row: _Row, known: Mapping[str, Outcome]) -> Outcome:
        if isinstance(step, RuleStep) and step.call is not None:  # nothing to wait for
            return await self._outcome(step, row, known)
        number = self._pending.enter(step.name, row.sample)
        try:
            outcome = self._outcome(step, row, known)
            return await (outcome if row.until is None else row.until.then_abstain(outcome))
        finally:
            self._pending.leave(number)

    async def _outcome(self, step: Step, row: _Row, known: Mapping[str, Outcome]) -> Outcome:
        unwanted, sample = None, row.sample
        if step.sources or step.gate is not None:
            unwanted = _unwanted(step.sources, step.gate, sample, known)
        if isinstance(step, ComparisonStep):
            assert row.member is not None  # noqa: S101 - such plans put every sample into a group
            return await self._comparisons.outcome(step, row.member, unwanted)
        if unwanted is not None:
            return unwanted
        if isinstance(step, JudgeStep):
            if step.turns is not None:
                return await self._by_turn(step, step.turns, row)
            outcome = await self._judges[step.judge].judge(sample, component=step.name)
            return outcome if step.range is None else in_unit(outcome, step.range)
        if step.call is not None:
            return in_place(step, sample)
        return await self._in_process(step, sample)

    async def _in_process(self, step: RuleStep, sample: Sample) -> Outcome:
        """The outcome of a rule that may hang: in a sandbox, or in a worker process."""
        if step.target == "code":
            return await self._code.outcome(
                sample, step.options, component=step.name, concurrency=step.programs
            )
        return await self._pool.run(
            step.target,
            sample,
            options=step.options,
            timeout_s=step.timeout_s,
            limits=step.limits,
        )

    async def _by_turn(self, step: JudgeStep, aggregate: Aggregate, row: _Row) -> Outcome:
        """The turns' verdicts as one; each is kept in `row.turns` as soon as all are known."""
        judge = self._judges[step.judge]
        found = await side_by_side(
            judge.judge(turn, component=step.name) for turn in samples_of_turns(row.sample)
        )
        outcomes = [in_unit(outcome, step.range) for outcome in found]
        row.turns[step.name] = outcomes
        return outcome_of_turns(outcomes, aggregate)


def _is_slow(step: Step) -> bool:
    """Whether other components go on while it is waited for."""
    return not isinstance(step, RuleStep) or step.call is None


def _is_by_row(step: Step) -> bool:
    return isinstance(step, RuleStep) and step.target == "by_data_source"


def _for_row(step: Step, sample: Sample) -> Step:
    """The step itself, or the rule that `by_data_source` selects for this row."""
    if not isinstance(step, RuleStep) or not _is_by_row(step):
        return step
    rule = selected(step.target, sample, step.options)
    if isinstance(rule, Abstain):
        return msgspec.structs.replace(step, call=lambda _: rule, options={})
    call = None if needs_pool(rule.scorer) else resolve(rule.scorer)
    return msgspec.structs.replace(step, call=call, target=rule.scorer, options=rule.options)


def in_place(step: RuleStep, sample: Sample) -> Outcome:
    """A built-in rule's outcome; a rule that raised abstains and says what happened."""
    assert step.call is not None  # noqa: S101 - the caller looked
    try:
        return step.call(sample, **step.options)
    except Exception as error:  # noqa: BLE001 - the boundary between scorers and the engine
        return Abstain(FailureKind.CRASHED, f"{step.target} raised {type(error).__name__}: {error}")


def _unwanted(
    sources: frozenset[str], gate: Gate | None, sample: Sample, known: Mapping[str, Outcome]
) -> Outcome | None:
    if sources and sample.data_source not in sources:
        return Skipped(f"not for data source {sample.data_source!r}")
    if gate is None:
        return None
    state = gate.is_open(known)
    if isinstance(state, Abstain):
        return state
    return None if state else gate_closed(gate)
