"""How much a step samples where ``algorithm.filter_groups`` leaves groups out by their rewards.

verl replaces a group whose rewards are all equal and goes on until a batch is full: for ever where
rewards never differ, with a judge that is paid each time.
"""

from __future__ import annotations

import logging
import math
from typing import Any

from zerowait.errors import JudgementError
from zerowait.types import Sample

_LOG = logging.getLogger(__name__)
_TRAINING = "train"


class SampledBatches:
    """Counts what one step samples in vain, tells of it after one batch, and stops training.

    Args:
        batch: groups, or responses, of a batch.
        most: so many batches may be sampled in vain for one step.
    """

    def __init__(self, *, batch: int, most: int) -> None:
        self._batch = batch
        self._most = most
        self._count = 0
        self._told = False

    def begin_step(self) -> None:
        """Count anew."""
        self._count, self._told = 0, False

    def add(self, count: int, *, why: str) -> None:
        """So many more in vain.

        Args:
            count: of them.
            why: what is known of them, such as ``all rewards are 0``.

        Raises:
            JudgementError: `most` batches are reached.
        """
        self.reach(self._count + count, why=why)

    def reach(self, count: int, *, why: str) -> None:
        """As `add`, where `count` is of all that the step has sampled in vain."""
        self._count = count
        if self._count >= self._most * self._batch:
            raise JudgementError(
                f"{self._most} batches were sampled for one step, and it is not full yet: {why}, "
                "and algorithm.filter_groups leaves groups without a difference out. "
                f"reward.zerowait.max_sampled_batches={self._most} (in a recipe "
                "trainer: {max_sampled_batches: n}) says when training stops"
            )
        if self._count >= self._batch and not self._told:
            self._told = True
            _LOG.warning(
                "zerowait: a whole batch was sampled in vain for one step: %s, and "
                "algorithm.filter_groups leaves groups without a difference out; training stops "
                "at %d batches (max_sampled_batches)",
                *(why, self._most),
            )


class SampledRows:
    """The same in a reward worker, for verl's own synchronous trainer: responses beyond a batch.

    A worker sees its share of a step's responses, which verl deals out at random. Once it has seen
    too many, groups of which it has seen none fail, for the rest of the run: verl then has groups
    without a row, and ends.

    Args:
        batch: responses of a step, of all workers.
        workers: among which they are dealt out.
        most: so many batches may be sampled beyond a step's own.
    """

    def __init__(self, *, batch: int, workers: int, most: int) -> None:
        self._share = math.ceil(batch / workers)
        self._beyond = SampledBatches(batch=self._share, most=most)
        self._step: int | None = None
        self._rows = 0
        self._groups: set[str | None] = set()
        self._stopped: JudgementError | None = None

    def add(self, sample: Sample) -> None:
        """One more response.

        Raises:
            JudgementError: a step has sampled too much.
        """
        if sample.split != _TRAINING or sample.group in self._groups:
            self._rows += sample.split == _TRAINING
            return
        if self._stopped is not None:
            raise self._stopped
        if sample.step != self._step:
            self._step, self._rows = sample.step, 0
            self._groups.clear()
            self._beyond.begin_step()
        beyond = max(0, self._rows + 1 - self._share)
        try:
            self._beyond.reach(beyond, why=f"step {sample.step} goes on sampling")
        except JudgementError as error:
            self._stopped = error
            raise
        self._rows += 1
        self._groups.add(sample.group)


def filters_groups(algorithm: Any) -> bool:
    """Whether groups are left out by their rewards: the section ``algorithm`` of verl's."""
    given = algorithm.get("filter_groups") or {}
    return str(given.get("enable", False)).lower() == "true"
