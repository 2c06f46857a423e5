"""Streaming rewards: a finite substitute for a row that abstained, for trainers that need one.

A streaming trainer (verl's own) takes each row's reward as it comes and cannot be told "no value".
So an abstained row with the policy ``neutral`` gets a substitute: the mean of the judged rows of
its group, which makes its advantage 0 under mean-centred GRPO. Under any other estimator that is
an approximation. A group without a judged row takes the mean of its step, then of the run.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, Final

import msgspec

from zerowait.engine import Engine
from zerowait.errors import JudgementError
from zerowait.types import Reward, Sample

TRAINING: Final = "train"
"""The split of the rows that are trained on."""
_STEPS_KEPT: Final = 64
_GROUPS_KEPT: Final = 8192
"""Groups that may wait for rows; some of them never come, where a rollout failed."""


class Streamed(msgspec.Struct, frozen=True, kw_only=True):
    """A row's reward, and the substitute that a streaming trainer trains on where it abstained.

    Args:
        reward: as it was judged.
        substitute: the finite number that replaces the value of an abstained row; None when the
            row was judged, and where no row was judged yet whose mean it could be.
        substitute_from: the rows whose mean `substitute` is: ``group``, ``step`` or ``run``; empty
            when there is none. In records and over HTTP this field is called ``stand_in``.
    """

    reward: Reward
    substitute: float | None = None
    substitute_from: str = msgspec.field(default="", name="stand_in")

    @property
    def value(self) -> float | None:
        """The reward's value; None when it abstained."""
        return self.reward.value

    @property
    def trained_on(self) -> float | None:
        """The value, or the substitute of an abstained row; None where there is neither."""
        return self.substitute if self.reward.value is None else self.reward.value

    def number(self, split: str) -> float:
        """The number for a trainer that needs one; NaN for a validation row that has none.

        Args:
            split: of the row's data.

        Raises:
            JudgementError: a row of the training abstained, and no row was judged before.
        """
        if self.trained_on is not None:
            return self.trained_on
        if split != TRAINING:
            return math.nan
        raise JudgementError(
            "no judgement has been reached yet, so there is nothing a neutral reward could be; "
            f"the latest failure: {self.reward.why}"
        )


class _Cohort:
    """Values of rows that are averaged together, and how many rows are still being judged."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.pending = 0
        self.seen = 0
        self.changed = asyncio.Event()
        self.substitute: tuple[float, str] | None = None

    def enter(self) -> None:
        self.pending += 1
        self.seen += 1

    def settle(self, value: float | None) -> None:
        self.pending -= 1
        if value is not None:
            self.values.append(value)
        self.changed.set()
        self.changed = asyncio.Event()

    @property
    def mean(self) -> float | None:
        return math.fsum(self.values) / len(self.values) if self.values else None


class Stream:
    """Scores rows one by one, and finds a substitute for each that abstained.

    Args:
        engine: an open engine.
        group_deadline_s: how long an abstained row waits for the rows whose mean it gets.
    """

    def __init__(self, engine: Engine, *, group_deadline_s: float) -> None:
        self._engine = engine
        self._group_deadline_s = group_deadline_s
        self._groups: dict[str, _Cohort] = {}
        self._steps: dict[tuple[str, int | None, str], _Cohort] = {}
        self._runs: dict[tuple[str, str], _RunningMean] = {}
        self._stopped: JudgementError | None = None

    async def reward(self, sample: Sample) -> Streamed:
        """The row's reward, with a substitute where it abstained.

        Raises:
            JudgementError: the policy is ``raise``, here or in an earlier call: the trainer has to
                stop.
        """
        if self._stopped is not None:
            raise self._stopped
        group, step = self._enter(sample)
        value: float | None = None
        try:
            try:
                reward = await self._engine.score(sample)
                value = reward.value
            except JudgementError as error:
                self._stopped = error
                raise
            finally:
                self._settle(sample, group, step, value)
            if value is not None:
                return Streamed(reward=reward)
            return await self._with_substitute(sample, reward, group, step)
        finally:
            self._forget(sample, group)

    def _enter(self, sample: Sample) -> tuple[_Cohort, _Cohort]:
        group = self._groups.setdefault(_group_key(sample), _Cohort())
        step = self._steps.setdefault((sample.split, sample.step, sample.data_source), _Cohort())
        group.enter()
        step.enter()
        return group, step

    def _settle(self, sample: Sample, group: _Cohort, step: _Cohort, value: float | None) -> None:
        group.settle(value)
        step.settle(value)
        if value is not None:
            run = self._runs.setdefault((sample.split, sample.data_source), _RunningMean())
            run.add(value)

    async def _with_substitute(
        self, sample: Sample, reward: Reward, group: _Cohort, step: _Cohort
    ) -> Streamed:
        size = _group_size(sample)
        await self._wait(group, lambda: group.pending == 0 and group.seen >= size)
        if group.mean is None:
            await self._wait(step, lambda: step.pending == 0)
        if group.substitute is None:
            # one for the whole group: two would give its abstained rows different advantages
            group.substitute = self._mean(sample, group, step)
        if group.substitute is None:
            return Streamed(reward=reward)
        value, source = group.substitute
        return Streamed(reward=reward, substitute=value, substitute_from=source)

    def _mean(self, sample: Sample, group: _Cohort, step: _Cohort) -> tuple[float, str] | None:
        """The first mean that exists of group, step and run, and its name.

        Validation takes none of the run: it measures one step, and earlier ones are no part of it.
        """
        means = [(group.mean, "group"), (step.mean, "step")]
        run = self._runs.get((sample.split, sample.data_source))
        if run is not None and sample.split == TRAINING:
            means.append((run.mean, "run"))
        return next(((mean, source) for mean, source in means if mean is not None), None)

    async def _wait(self, cohort: _Cohort, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds, at most `group_deadline_s`."""
        try:
            async with asyncio.timeout(self._group_deadline_s):
                while not condition():
                    await cohort.changed.wait()
        except TimeoutError:
            return

    def _forget(self, sample: Sample, group: _Cohort) -> None:
        """Drop a finished group, and the oldest groups and steps, to bound memory."""
        if group.pending == 0 and group.seen >= _group_size(sample):
            self._groups.pop(_group_key(sample), None)
        _drop_oldest(self._groups, _GROUPS_KEPT)
        _drop_oldest(self._steps, _STEPS_KEPT)


def _drop_oldest(cohorts: dict[Any, _Cohort], most: int) -> None:
    """Drop the oldest beyond `most`, unless one of its rows is still being judged."""
    if len(cohorts) > most:
        oldest = next(iter(cohorts))
        if cohorts[oldest].pending == 0:
            del cohorts[oldest]


class _RunningMean:
    """The mean of all values added so far."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._count = 0

    def add(self, value: float) -> None:
        self._sum += value
        self._count += 1

    @property
    def mean(self) -> float:
        return self._sum / self._count


def _group_key(sample: Sample) -> str:
    return f"{sample.split}/{sample.group}" if sample.group is not None else f"#{id(sample)}"


def _group_size(sample: Sample) -> int:
    """The number of rows with the sample's group key: 1 for a row without a group."""
    return 1 if sample.group is None else sample.group_size or 1
