"""Recorded scoring: an engine whose rewards are on the disk before they are returned."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from zerowait.engine.engine import Engine
from zerowait.engine.final_rewards import FinalRewards
from zerowait.events import SAMPLE_UIDS
from zerowait.record import RewardRecord, RunRecord
from zerowait.types import Reward, Sample, samples_in


class RecordedSample:
    """A sample that is being scored, under its name in the record.

    Args:
        sample: what is scored.
        uid: its name.
        record: of the run.
    """

    def __init__(self, sample: Sample, uid: str, record: RunRecord) -> None:
        self._sample = sample
        self._uid = uid
        self._record = record
        self._submitted_at = time.time()

    def rewarded(
        self,
        reward: Reward,
        *,
        trained_on: float | None = None,
        substitute_from: str = "",
        ticket: str = "",
    ) -> None:
        """Record the sample's reward.

        Args:
            reward: as it was judged.
            trained_on: the number the trainer gets where the reward has no value.
            substitute_from: the rows whose mean that is.
            ticket: the name of the sample's ticket; empty without one.

        Raises:
            OSError: it was not written, because the disk is full, say; names the file.
        """
        self._record.reward(
            RewardRecord(
                uid=self._uid,
                sample=self._sample,
                reward=reward,
                trained_on=trained_on if reward.value is None else reward.value,
                substitute_from=substitute_from,
                ticket=ticket,
                submitted_at=self._submitted_at,
                settled_at=time.time(),
            )
        )


class RecordedEngine:
    """Scores by an engine, and records each reward before it is returned.

    Args:
        engine: its `recorder` is `record`.
        record: of the run, or None: nothing is recorded.
    """

    def __init__(self, engine: Engine, record: RunRecord | None) -> None:
        self._engine = engine
        self._record = record

    @contextmanager
    def naming(self, sample: Sample) -> Iterator[RecordedSample | None]:
        """Name the sample in the judgements of this block; None without a record."""
        if self._record is None:
            yield None
            return
        uid = self._record.new_uid()
        named = SAMPLE_UIDS.set((uid,))
        try:
            yield RecordedSample(sample, uid, self._record)
        finally:
            SAMPLE_UIDS.reset(named)

    async def score(self, sample: Sample, *, ticket: str = "") -> Reward:
        """The reward of one sample; see `Engine.score`.

        Args:
            sample: to score.
            ticket: the name of its ticket, for the record; empty without one.
        """
        if self._record is None:
            return await self._engine.score(sample)
        with self.naming(sample) as recorded:
            reward = await self._engine.score(sample)
            if recorded is not None:
                recorded.rewarded(reward, ticket=ticket)
        return reward

    async def score_all(
        self,
        samples: Sequence[Sample],
        *,
        on_reward: Callable[[int, Reward], None] | None = None,
        deadline_s: float | None = None,
    ) -> list[Reward]:
        """The rewards of all samples, in order; each is recorded as soon as it is final.

        Args:
            samples: to score.
            on_reward: see `Engine.score_all`.
            deadline_s: see `Engine.score_all`.
        """
        record = self._record
        if record is None:
            return await self._engine.score_all(samples, on_reward=on_reward, deadline_s=deadline_s)
        rows = samples_in(samples, "score_all", one="score")
        uids = [record.new_uid() for _ in rows]
        recorded = [RecordedSample(row, uid, record) for row, uid in zip(rows, uids, strict=True)]
        final = FinalRewards(rows, self._engine.config.on_failure)

        def keep(index: int, reward: Reward) -> None:
            for at, each in final.add(index, reward):
                recorded[at].rewarded(each)
            if on_reward is not None:
                on_reward(index, reward)

        return await self._engine.score_all(rows, on_reward=keep, deadline_s=deadline_s, uids=uids)
