"""Runs the health checks on each training step of a run, and raises each alarm once."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from operator import attrgetter

from zerowait.engine.monitor.health import (
    HealthFinding,
    HealthRow,
    StepMean,
    StepRow,
    failing_judge,
    findings,
    row_of,
    step_mean,
)
from zerowait.engine.plan import Plan, RuleStep
from zerowait.events import Event, HealthAlarm, Listener, RewardSettled

_MEANS_KEPT = 32
_ROWS_KEPT = 65_536


class HealthMonitor:
    """An event listener that checks each step's rewards and raises `HealthAlarm` events.

    Only samples with a ``step`` are checked. A step is checked when the first reward of a later one
    is known, or at the end; rewards that come later are left out. An alarm is raised when a step
    has it and the step before had not.

    Where several engines share a job, each sees a part of a step, too little to check. So each one
    only collects its rows (`take_rows`), and the first engine gets those of all (`observe`).

    Args:
        plan: says which components are rules and which are judges.
        listener: gets the alarms.
        split: the only part of the data that is checked.
        alone: whether no other engine shares the job.
    """

    def __init__(
        self, plan: Plan, listener: Listener, *, split: str = "train", alone: bool = True
    ) -> None:
        weights = [(step, step.factor) for step in plan.steps if isinstance(step, RuleStep)]
        self._rules = {step.name: factor for step, factor in weights if factor != 0}
        self._judges = {step.name for step in plan.steps if not isinstance(step, RuleStep)}
        self._listener = listener
        self._split = split
        self._alone = alone
        self._collected: list[StepRow] = []
        self._held: list[StepRow] = []
        self._newest = -1
        self._step: int | None = None
        self._rows: list[HealthRow] = []
        self._means: deque[StepMean] = deque(maxlen=_MEANS_KEPT)
        self._on: dict[tuple[str, str], HealthFinding] = {}
        self._failed: Counter[str] = Counter()
        self._rows_before = 0

    def __call__(self, event: Event) -> None:
        """Note a reward; other events are ignored."""
        if not isinstance(event, RewardSettled):
            return
        sample = event.sample
        if sample.split != self._split or sample.step is None:
            return
        row = StepRow(sample.step, row_of(sample, event.reward, self._rules, self._judges))
        if self._alone:
            self._add(row)
        elif len(self._collected) < _ROWS_KEPT:
            self._collected.append(row)

    def take_rows(self) -> list[StepRow]:
        """The rows collected since the last call; always none for an engine that is alone."""
        rows, self._collected = self._collected, []
        return rows

    def observe(self, rows: Sequence[StepRow]) -> None:
        """Note the rows that all engines have collected since the last call.

        Rows of a step that is newer than all before are held until the next call: rows of the step
        before it may still be on their way from another engine.
        """
        batch = sorted([*self._held, *rows], key=attrgetter("step"))
        for row in batch:
            if row.step <= self._newest:
                self._add(row)
        self._held = [row for row in batch if row.step > self._newest]
        if batch:
            self._newest = max(self._newest, batch[-1].step)

    @property
    def on(self) -> dict[str, int]:
        """How many components have each alarm, as of the last step that was checked."""
        counts: dict[str, int] = {}
        for kind, _ in self._on:
            counts[kind] = counts.get(kind, 0) + 1
        return counts

    def close(self) -> None:
        """Check the rows of the last step."""
        held, self._held = self._held, []
        for row in held:
            self._add(row)
        self._end_step()

    def _add(self, row: StepRow) -> None:
        if self._step is None or row.step > self._step:
            self._end_step()
            self._step = row.step
        if row.step == self._step and len(self._rows) < _ROWS_KEPT:
            self._rows.append(row.row)
            for name in row.row.failed:
                self._note_failure(name)

    def _note_failure(self, name: str) -> None:
        """Raise ``judge_fails`` within the step, where it is expected to be as large as the last.

        A step without one before it is checked at its end.
        """
        self._failed[name] += 1
        failed, alarm = self._failed[name], ("judge_fails", name)
        # at 8, 16, 32 ... failures: each look reads all rows of the step
        if failed & (failed - 1) or not self._rows_before or alarm in self._on:
            return
        found = failing_judge(name, self._rows, self._rows_before)
        if found is not None:
            self._on[alarm] = found
            self._raise(found)

    def _end_step(self) -> None:
        """Check the current step's rows and raise its new alarms; nothing where it has no rows."""
        rows, self._rows = self._rows, []
        self._failed.clear()
        self._rows_before = len(rows)
        if not rows or self._step is None:
            return
        found = {(each.kind, each.component): each for each in findings(rows, list(self._means))}
        before, self._on = self._on, found
        mean = step_mean(rows)
        if mean is not None:
            self._means.append(mean)
        for alarm, each in found.items():
            if alarm not in before:
                self._raise(each)

    def _raise(self, found: HealthFinding) -> None:
        self._listener(
            HealthAlarm(
                kind=found.kind, component=found.component, step=self._step or 0, why=found.why
            )
        )
