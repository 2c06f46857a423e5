"""Rewards for trainers that take each one as it comes and need a finite number for every row.

Such a trainer (verl's own) cannot be told "no value". Here ``neutral`` becomes the mean of the
row's surviving siblings, which gives it no push under mean-centred GRPO; under any other estimator
it is an approximation, and the documentation says so.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

import msgspec

from zerowait.engine import Engine
from zerowait.errors import JudgementError
from zerowait.types import Reward, Sample

TRAINING: Final = "train"
"""The split of the rows that are trained on."""


class Streamed(msgspec.Struct, frozen=True, kw_only=True):
    """What a streaming trainer gets for one row.

    Args:
        reward: what was really judged.
        substitute: the finite number that takes the place of the value when the row abstained;
            None when it was judged, and where nothing was judged yet that it could be made from.
        stand_in: where `substitute` came from: ``group`` (the siblings' mean), ``step`` or ``run``
            (the mean of the rows judged there); empty when there is none.
    """

    reward: Reward
    substitute: float | None = None
    stand_in: str = ""

    @property
    def value(self) -> float | None:
        """The reward's value, as everywhere: None when it abstained."""
        return self.reward.value

    @property
    def trained_on(self) -> float | None:
        """The value, or the substitute of an abstained row; None where there is neither."""
        return self.substitute if self.reward.value is None else self.reward.value

    def number(self, split: str) -> float:
        """What a trainer that needs a number gets for a row; NaN in a validation without one.

        Raises:
            JudgementError: a row of the training abstained, and nothing was judged before.
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
    """Rows that are averaged together, and whether more of them are still being judged."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.pending = 0
        self.seen = 0
        self.changed = asyncio.Event()
        self.stand_in: tuple[float, str] | None = None

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
    """Turns an engine's rewards into the numbers of a streaming trainer.

    Args:
        engine: an open engine.
        patience_s: how long an abstained row waits for those it is averaged with.
    """

    def __init__(self, engine: Engine, *, patience_s: float) -> None:
        self._engine = engine
        self._patience_s = patience_s
        self._groups: dict[str, _Cohort] = {}
        self._steps: dict[tuple[str, int | None, str], _Cohort] = {}
        self._runs: dict[tuple[str, str], _Running] = {}
        self._stopped: JudgementError | None = None

    async def reward(self, sample: Sample) -> Streamed:
        """The row's reward, and a number to train on where it has no value.

        Raises:
            JudgementError: the policy is ``raise``; then every later call raises too, so that the
                trainer stops.
        """
        if self._stopped is not None:
            raise self._stopped
        group, step = self._enter(sample)
        value: float | None = None
        try:
            reward = await self._engine.score(sample)
            value = reward.value
        except JudgementError as error:
            self._stopped = error
            raise
        finally:
            self._settle(sample, group, step, value)
        try:
            if value is not None:
                return Streamed(reward=reward)
            return await self._stand_in(sample, reward, group, step)
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
            run = self._runs.setdefault((sample.split, sample.data_source), _Running())
            run.add(value)

    async def _stand_in(
        self, sample: Sample, reward: Reward, group: _Cohort, step: _Cohort
    ) -> Streamed:
        size = _group_size(sample)
        await self._until(group, lambda: group.pending == 0 and group.seen >= size)
        if group.mean is None:
            await self._until(step, lambda: step.pending == 0)
        if group.stand_in is None:
            # once for all siblings: two numbers in one group would push one against the other
            group.stand_in = self._number(sample, group, step)
        if group.stand_in is None:
            return Streamed(reward=reward)
        value, source = group.stand_in
        return Streamed(reward=reward, substitute=value, stand_in=source)

    def _number(self, sample: Sample, group: _Cohort, step: _Cohort) -> tuple[float, str] | None:
        """A validation is measured anew each time: what earlier ones brought is no part of it."""
        known = [(group.mean, "group"), (step.mean, "step")]
        run = self._runs.get((sample.split, sample.data_source))
        if run is not None and sample.split == TRAINING:
            known.append((run.mean, "run"))
        return next(((mean, source) for mean, source in known if mean is not None), None)

    async def _until(self, cohort: _Cohort, true: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                while not true():
                    await cohort.changed.wait()
        except TimeoutError:
            return

    def _forget(self, sample: Sample, group: _Cohort) -> None:
        """Drops a finished group, and the steps before the last two, so that nothing grows."""
        if group.pending == 0 and group.seen >= _group_size(sample):
            self._groups.pop(_group_key(sample), None)
        if len(self._steps) > _STEPS_KEPT:
            oldest = next(iter(self._steps))
            if self._steps[oldest].pending == 0:
                del self._steps[oldest]


class _Running:
    """A mean over everything so far."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._count = 0

    def add(self, value: float) -> None:
        self._sum += value
        self._count += 1

    @property
    def mean(self) -> float:
        return self._sum / self._count


_STEPS_KEPT = 64


def _group_key(sample: Sample) -> str:
    return f"{sample.split}/{sample.group}" if sample.group is not None else f"#{id(sample)}"


def _group_size(sample: Sample) -> int:
    """How many rows meet under the sample's key; one without a group meets nobody."""
    return 1 if sample.group is None else sample.group_size or 1
