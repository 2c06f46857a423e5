"""Recorded scoring: an engine whose rewards are on the disk before they are returned."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress

from zerowait.engine.engine import Engine
from zerowait.engine.final_rewards import FinalRewards, IndexedReward
from zerowait.events import SAMPLE_UIDS
from zerowait.record import RewardRecord, RunRecord
from zerowait.types import Reward, Sample, samples_in


class RecordedSample:
    """A sample that is being scored, under its name in the record.

    Args:
        sample: what is scored.
        uid: its name.
        record: of the run.
        engine: counts a reward that could not be recorded.
    """

    def __init__(self, sample: Sample, uid: str, record: RunRecord, engine: Engine) -> None:
        self._engine = engine
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
        line = RewardRecord(
            uid=self._uid,
            sample=self._sample,
            reward=reward,
            trained_on=trained_on if reward.value is None else reward.value,
            substitute_from=substitute_from,
            ticket=ticket,
            submitted_at=self._submitted_at,
            settled_at=time.time(),
        )
        try:
            self._record.reward(line)
        except OSError:
            self._engine.not_recorded([reward])
            raise


class _BatchedWrites:
    """Writes the rewards of one turn of the event loop to the record at once.

    Args:
        samples: the whole list.
        record: of the run.
        final: of the same samples.
        on_reward: called with an index and its reward once they are recorded.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        record: RunRecord,
        final: FinalRewards,
        on_reward: Callable[[int, Reward], None] | None,
    ) -> None:
        self.uids = [record.new_uid() for _ in samples]
        self._samples = samples
        self._submitted_at = time.time()
        self._record = record
        self._final = final
        self._on_reward = on_reward
        self._known: list[IndexedReward] = []
        self._error: Exception | None = None
        self._not_written: dict[int, Reward] = {}

    @property
    def lost(self) -> Collection[Reward]:
        """What could not be recorded, where that has failed: the caller gets none of it."""
        return self._not_written.values() if isinstance(self._error, OSError) else ()

    def add(self, index: int, reward: Reward) -> None:
        """Queue a reward, which may not be final yet; it is handed on in the loop's next turn.

        Args:
            index: of the sample.
            reward: its reward.

        Raises:
            Exception: what an earlier write or call raised.
        """
        if self._error is not None:
            self._not_written[index] = reward
            raise self._error
        if not self._known:
            asyncio.get_running_loop().call_soon(self._write_or_keep_error)
        self._known.append((index, reward))

    def write(self) -> None:
        """Write what is still queued.

        Raises:
            Exception: what an earlier write or call raised, or this one.
        """
        self._write_or_keep_error()
        if self._error is not None:
            raise self._error

    def _write_or_keep_error(self) -> None:
        known, self._known = self._known, []
        final: list[IndexedReward] = []
        try:
            for index, reward in known:
                final += self._final.add(index, reward)
            self._record.rewards(self._lines(final))
        except Exception as error:  # noqa: BLE001 - raised to the caller by `add` or `write`
            self._error = self._error or error
            self._not_written |= dict([*known, *final, *self._final.held])
            return
        if self._on_reward is None:
            return
        try:
            for index, reward in known:
                self._on_reward(index, reward)
        except Exception as error:  # noqa: BLE001 - likewise
            self._error = self._error or error

    def _lines(self, final: Sequence[IndexedReward]) -> list[RewardRecord]:
        settled_at = time.time()
        return [
            RewardRecord(
                uid=self.uids[index],
                sample=self._samples[index],
                reward=reward,
                trained_on=reward.value,
                submitted_at=self._submitted_at,
                settled_at=settled_at,
            )
            for index, reward in final
        ]


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
            yield RecordedSample(sample, uid, self._record, self._engine)
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
            on_reward: see `Engine.score_all`; called once the reward is recorded.
            deadline_s: see `Engine.score_all`.
        """
        record = self._record
        if record is None:
            return await self._engine.score_all(samples, on_reward=on_reward, deadline_s=deadline_s)
        rows = samples_in(samples, "score_all", one="score")
        final = FinalRewards(rows, self._engine.config.on_failure)
        batched = _BatchedWrites(rows, record, final, on_reward)
        try:
            rewards = await self._engine.score_all(
                rows, on_reward=batched.add, deadline_s=deadline_s, uids=batched.uids
            )
            batched.write()
        except BaseException:
            with suppress(Exception):  # the caller gets the failure that came first
                batched.write()
            self._engine.not_recorded(batched.lost)
            raise
        return rewards
