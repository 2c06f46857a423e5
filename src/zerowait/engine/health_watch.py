"""Looks at each training step's rewards as the run goes on, and tells what is wrong once."""

from __future__ import annotations

from collections import deque

from zerowait.engine.health import Finding, Row, StepMean, findings, row_of, step_mean
from zerowait.engine.plan import Plan, RuleStep
from zerowait.events import Event, HealthAlarm, Listener, RewardSettled

_MEANS_KEPT = 32
_ROWS_KEPT = 65_536


class HealthWatch:
    """A listener that raises `HealthAlarm` events; looks at rows that say their training step.

    A step is looked at when the first reward of a later one is known, or at the end; what comes
    after that is too late for it. An alarm is raised when a step has it and the step before had
    not.

    Args:
        plan: says which components are rules and which are judges.
        listener: told of each alarm.
        split: the only part of the data that is looked at.
    """

    def __init__(self, plan: Plan, listener: Listener, *, split: str = "train") -> None:
        weights = [(step, step.factor) for step in plan.rules if isinstance(step, RuleStep)]
        self._rules = {step.name: factor for step, factor in weights if factor != 0}
        self._judges = {step.name for step in plan.rules if not isinstance(step, RuleStep)}
        self._listener = listener
        self._split = split
        self._step: int | None = None
        self._rows: list[Row] = []
        self._means: deque[StepMean] = deque(maxlen=_MEANS_KEPT)
        self._on: dict[tuple[str, str], Finding] = {}

    def __call__(self, event: Event) -> None:
        """Take note of a reward; other events are none of its business."""
        if not isinstance(event, RewardSettled):
            return
        sample = event.sample
        if sample.split != self._split or sample.step is None:
            return
        if self._step is None or sample.step > self._step:
            self.end_step()
            self._step = sample.step
        if sample.step == self._step and len(self._rows) < _ROWS_KEPT:
            self._rows.append(row_of(sample, event.reward, self._rules, self._judges))

    @property
    def on(self) -> dict[str, int]:
        """How many components have each alarm, by the last step that was looked at."""
        counts: dict[str, int] = {}
        for kind, _ in self._on:
            counts[kind] = counts.get(kind, 0) + 1
        return counts

    def end_step(self) -> None:
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
