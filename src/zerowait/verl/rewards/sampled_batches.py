"""Stop a step that samples without end because ``algorithm.filter_groups`` drops every group.

verl replaces each group whose rewards are all equal until the batch is full. Where rewards never
differ that never ends, and every judgement is paid for.
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
    """Counts a step's dropped groups (or responses): warns after one batch, stops at `most`.

    Args:
        batch: groups, or responses, in a batch.
        most: number of dropped batches in one step at which training stops.
    """

    def __init__(self, *, batch: int, most: int) -> None:
        self._batch = batch
        self._most = most
        self._count = 0
        self._warned = False

    def begin_step(self) -> None:
        """Set the count to 0."""
        self._count, self._warned = 0, False

    def add(self, count: int, *, why: str) -> None:
        """Count further dropped groups.

        Args:
            count: how many.
            why: what they have in common, for the message, such as ``all rewards are 0``.

        Raises:
            JudgementError: `most` batches were dropped.
        """
        self.reach(self._count + count, why=why)

    def reach(self, count: int, *, why: str) -> None:
        """As `add`, where `count` is the step's total so far."""
        self._count = count
        if self._count >= self._most * self._batch:
            raise JudgementError(
                f"{self._most} batches were sampled for one step, and it is not full yet: {why}, "
                "and algorithm.filter_groups leaves groups without a difference out. "
                f"reward.zerowait.max_sampled_batches={self._most} (in a recipe "
                "trainer: {max_sampled_batches: n}) says when training stops"
            )
        if self._count >= self._batch and not self._warned:
            self._warned = True
            _LOG.warning(
                "zerowait: a whole batch was sampled in vain for one step: %s, and "
                "algorithm.filter_groups leaves groups without a difference out; training stops "
                "at %d batches (max_sampled_batches)",
                *(why, self._most),
            )


class SampledRows:
    """The same limit for verl's own synchronous trainer, kept in each reward worker.

    A worker gets a random share of a step's responses and counts those beyond its share of one
    batch. At the limit it fails every group of which it has scored no response, for the rest of the
    run: verl then has groups without a row, and ends the training.

    Args:
        batch: responses in a step, over all workers.
        workers: number of reward workers.
        most: batches that may be sampled beyond a step's own.
    """

    def __init__(self, *, batch: int, workers: int, most: int) -> None:
        self._share = math.ceil(batch / workers)
        self._dropped = SampledBatches(batch=self._share, most=most)
        self._step: int | None = None
        self._rows = 0
        self._groups: set[str | None] = set()
        self._stopped: JudgementError | None = None

    def add(self, sample: Sample) -> None:
        """Count one more response.

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
            self._dropped.begin_step()
        beyond = max(0, self._rows + 1 - self._share)
        try:
            self._dropped.reach(beyond, why=f"step {sample.step} goes on sampling")
        except JudgementError as error:
            self._stopped = error
            raise
        self._rows += 1
        self._groups.add(sample.group)


def filters_groups(algorithm: Any) -> bool:
    """Whether verl drops groups by their rewards; takes the section ``algorithm``."""
    given = algorithm.get("filter_groups") or {}
    return str(given.get("enable", False)).lower() == "true"
