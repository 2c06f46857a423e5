"""Looks at each training step's rewards as the run goes on, and tells what is wrong once."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import attrgetter

from zerowait.engine.monitor.health import (
    HealthFinding,
    HealthRow,
    StepMean,
    StepRow,
    findings,
    row_of,
    step_mean,
)
from zerowait.engine.plan import Plan, RuleStep
from zerowait.events import Event, HealthAlarm, Listener, RewardSettled

_MEANS_KEPT = 32
_ROWS_KEPT = 65_536


class HealthWatch:
    """A listener that raises `HealthAlarm` events; looks at rows that say their training step.

    A step is looked at when the first reward of a later one is known, or at the end; what comes
    after that is too late for it. An alarm is raised when a step has it and the step before had
    not.

    Where several engines share a job, each sees a part of a step, in which nothing can be seen. So
    each only gathers its rows, and the first one looks at what all of them have `gathered`.

    Args:
        plan: says which components are rules and which are judges.
        listener: told of each alarm.
        split: the only part of the data that is looked at.
        alone: no other engine shares the job.
    """

    def __init__(
        self, plan: Plan, listener: Listener, *, split: str = "train", alone: bool = True
    ) -> None:
        weights = [(step, step.factor) for step in plan.rules if isinstance(step, RuleStep)]
        self._rules = {step.name: factor for step, factor in weights if factor != 0}
        self._judges = {step.name for step in plan.rules if not isinstance(step, RuleStep)}
        self._listener = listener
        self._split = split
        self._alone = alone
        self._gathered: list[StepRow] = []
        self._held: list[StepRow] = []
        self._newest = -1
        self._step: int | None = None
        self._rows: list[HealthRow] = []
        self._means: deque[StepMean] = deque(maxlen=_MEANS_KEPT)
        self._on: dict[tuple[str, str], HealthFinding] = {}

    def __call__(self, event: Event) -> None:
        """Take note of a reward; other events are none of its business."""
        if not isinstance(event, RewardSettled):
            return
        sample = event.sample
        if sample.split != self._split or sample.step is None:
            return
        seen = StepRow(sample.step, row_of(sample, event.reward, self._rules, self._judges))
        if self._alone:
            self._take(seen)
        elif len(self._gathered) < _ROWS_KEPT:
            self._gathered.append(seen)

    def gathered(self) -> list[StepRow]:
        """The rows since the last time; always none for an engine that is alone."""
        rows, self._gathered = self._gathered, []
        return rows

    def look(self, rows: Sequence[StepRow]) -> None:
        """Take note of what all engines have gathered since the last time.

        A step that is newer than all before waits for the next time: rows of the step before it may
        be on their way from another engine.
        """
        batch = sorted([*self._held, *rows], key=attrgetter("step"))
        for seen in batch:
            if seen.step <= self._newest:
                self._take(seen)
        self._held = [seen for seen in batch if seen.step > self._newest]
        if batch:
            self._newest = max(self._newest, batch[-1].step)

    @property
    def on(self) -> dict[str, int]:
        """How many components have each alarm, by the last step that was looked at."""
        counts: dict[str, int] = {}
        for kind, _ in self._on:
            counts[kind] = counts.get(kind, 0) + 1
        return counts

    def close(self) -> None:
        """Look at what there is of the last step."""
        held, self._held = self._held, []
        for seen in held:
            self._take(seen)
        self._end_step()

    def _take(self, seen: StepRow) -> None:
        if self._step is None or seen.step > self._step:
            self._end_step()
            self._step = seen.step
        if seen.step == self._step and len(self._rows) < _ROWS_KEPT:
            self._rows.append(seen.row)

    def _end_step(self) -> None:
        """Look at the step's rows; does nothing where there is none."""
        rows, self._rows = self._rows, []
        if not rows or self._step is None:
            return
        found = {(each.kind, each.component): each for each in findings(rows, list(self._means))}
        before, self._on = self._on, found
        mean = step_mean(rows)
        if mean is not None:
            self._means.append(mean)
        for place, each in found.items():
            if place not in before:
                kind, component = place
                self._listener(
                    HealthAlarm(kind=kind, component=component, step=self._step, why=each.why)
                )
