"""Rewards for trainers that take each one as it comes and need a finite number for every row.

Such a trainer (verl's own) cannot be told "no value". Here ``neutral`` becomes the mean of the
row's surviving siblings, which gives it no push under mean-centred GRPO; under any other estimator
it is an approximation, and the documentation says so.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import msgspec

from zerowait.engine import Engine
from zerowait.errors import JudgementError
from zerowait.types import Reward, Sample


class Streamed(msgspec.Struct, frozen=True, kw_only=True):
    """What a streaming trainer gets for one row.

    Args:
        value: finite in training, always; None for a row of a validation in whose step nothing was
            judged, which has no number.
        reward: what was really judged; its value is None when it abstained.
        stand_in: where `value` came from when the row abstained: ``group`` (its siblings' mean),
            ``step`` or ``run`` (the mean of the rows judged there); empty when it was judged.
    """

    value: float | None
    reward: Reward
    stand_in: str = ""


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
        """The row's number.

        Raises:
            JudgementError: the policy is ``raise`` (then every later call raises too, so that the
                trainer stops), or a training row abstained and nothing was ever judged to stand in
            for it.
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
                return Streamed(value=value, reward=reward)
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
        if group.stand_in is None and sample.split != _TRAINING:
            return Streamed(value=None, reward=reward)
        if group.stand_in is None:
            raise JudgementError(
                "no judgement has been reached yet, so there is nothing a neutral reward could "
                f"be; the latest failure: {reward.why}"
            )
        value, source = group.stand_in
        return Streamed(value=value, reward=reward, stand_in=source)

    def _number(self, sample: Sample, group: _Cohort, step: _Cohort) -> tuple[float, str] | None:
        """A validation is measured anew each time: what earlier ones brought is no part of it."""
        known = [(group.mean, "group"), (step.mean, "step")]
        run = self._runs.get((sample.split, sample.data_source))
        if run is not None and sample.split == _TRAINING:
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
_TRAINING = "train"


def _group_key(sample: Sample) -> str:
    return f"{sample.split}/{sample.group}" if sample.group is not None else f"#{id(sample)}"


def _group_size(sample: Sample) -> int:
    """How many rows meet under the sample's key; one without a group meets nobody."""
    return 1 if sample.group is None else sample.group_size or 1
