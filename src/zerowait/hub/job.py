"""The place where all judge traffic of a job meets: an engine, its stream and its record."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias

from zerowait.config import FailurePolicy, RewardConfig
from zerowait.engine import (
    ALARMS,
    Engine,
    ForwardedRequest,
    JudgementResult,
    Partition,
    Stats,
    StepRow,
    failure_reason,
    settle_groups,
)
from zerowait.events import Event, HealthAlarm, JudgementSettled
from zerowait.hub.records import Records, RewardRecord
from zerowait.hub.shard_stats import merged_stats
from zerowait.hub.slots import ShardLoad
from zerowait.hub.streaming import Stream, Streamed
from zerowait.hub.tickets import Tickets, ticket_of
from zerowait.types import Abstain, Reward, Sample

Indexed: TypeAlias = tuple[int, Reward]
"""A sample's index and its reward."""


class Finality:
    """Says which rewards of a list cannot change any more.

    Under ``drop_group`` a reward depends on its siblings', so that none of a group is final before
    all are known; under any other policy each is.

    Args:
        samples: the whole list.
        on_failure: the policy.
    """

    def __init__(self, samples: Sequence[Sample], on_failure: FailurePolicy) -> None:
        self._groups = [sample.group for sample in samples]
        self._quorum = on_failure.quorum
        self._waits = on_failure.can_drop
        self._missing = Counter(self._groups)
        self._held: dict[str | None, list[Indexed]] = {}

    def known(self, index: int, reward: Reward) -> list[Indexed]:
        """What is final now that this reward is known."""
        group = self._groups[index]
        if not self._waits or group is None:
            [settled] = settle_groups([reward], [None], self._quorum)
            return [(index, settled)]
        self._missing[group] -= 1
        held = self._held.setdefault(group, [])
        held.append((index, reward))
        if self._missing[group]:
            return []
        rewards = [each for _, each in self._held.pop(group)]
        settled_all = settle_groups(rewards, [group] * len(rewards), self._quorum)
        return [(at, each) for (at, _), each in zip(held, settled_all, strict=True)]


async def one_by_one(
    score_all: Callable[[Callable[[int, Reward], None]], Coroutine[Any, Any, object]],
    finality: Finality,
) -> AsyncGenerator[Indexed, None]:
    """The rewards in the order in which they become final; ends the work when nobody listens.

    Args:
        score_all: does the work and tells of each reward as soon as it is known.
        finality: of the same list.

    Raises:
        Exception: what `score_all` raises, after what was final before.
    """
    final: asyncio.Queue[Indexed | None] = asyncio.Queue()

    def told(index: int, reward: Reward) -> None:
        for each in finality.known(index, reward):
            final.put_nowait(each)

    work = asyncio.create_task(score_all(told))
    work.add_done_callback(lambda _: final.put_nowait(None))
    try:
        while (each := await final.get()) is not None:
            yield each
        await work
    finally:
        work.cancel()
        await asyncio.wait({work})


_QUIET_S: Final = 0.05

_log = logging.getLogger(__name__)
_MOST_REASONS: Final = 20


class Hub(Protocol):
    """What a trainer's plug-in asks for rewards, wherever it lives."""

    async def reward(self, sample: Sample) -> Streamed:
        """The row's number and what was really judged."""

    async def stats(self) -> Stats:
        """A frozen snapshot of the whole job."""


class _Log:
    """A listener that logs alarms, and each reason why judgements failed, once."""

    def __init__(self) -> None:
        self._reasons: set[str] = set()

    def __call__(self, event: Event) -> None:
        match event:
            case HealthAlarm():
                about = f" ({event.component})" if event.component else ""
                says = f"{ALARMS[event.kind]}: {event.why}"
                _log.warning("step %d: %s%s: %s", event.step, event.kind, about, says)
            case JudgementSettled(outcome=Abstain() as failed):
                self._failed(event.judge, failed)
            case _:
                pass

    def _failed(self, judge: str, failed: Abstain) -> None:
        if len(self._reasons) >= _MOST_REASONS:
            return
        reason = failure_reason(failed)
        if reason not in self._reasons:
            self._reasons.add(reason)
            _log.warning("judge %s: %s (told once; stats() and the report count)", judge, reason)


class JobHub:
    """The hub itself, on the running loop; opened and closed with ``async with``.

    Args:
        config: a path to a ``reward.yaml``, a mapping, or a `RewardConfig`.
        record: the folder that gets ``rewards.jsonl`` and ``stats.jsonl``; None keeps no record.
        partition: this hub's place among the shards of one that is spread over several processes.
        others: the latest statistics of the other shards, which the first one puts on the record.
    """

    def __init__(
        self,
        config: str | Path | Mapping[str, Any] | RewardConfig,
        *,
        record: Path | None = None,
        partition: Partition | None = None,
        others: Callable[[], Sequence[Stats]] = list,
    ) -> None:
        self._engine = Engine(config, listener=_Log(), partition=partition)
        self._keeps_stats = partition is None or partition.shard.index == 0
        self._others = others
        patience_s = self._engine.config.traffic.group_deadline_s
        self._stream = Stream(self._engine, patience_s=patience_s)
        self._tickets = Tickets(lambda sample: self._scored(sample, ticket=ticket_of(sample)))
        self._folder = record
        self._records: Records | None = None
        self._place: tuple[str, int | None] = ("", None)
        self._recorded_s = 0.0
        self._flushing: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        await self._engine.__aenter__()
        try:
            self._records = None if self._folder is None else Records(self._folder)
        except BaseException:
            await self._engine.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self, *, drain_s: float = 0.0) -> None:
        """Close the hub and its record. Idempotent; `drain_s` as in `Engine.aclose`."""
        try:
            await self._engine.aclose(drain_s=drain_s)
        finally:
            await self._tickets.aclose()
        if self._flushing is not None:
            self._flushing.cancel()
        records, self._records = self._records, None
        if records is not None:
            try:
                if self._keeps_stats:
                    split, step = self._place
                    records.stats(self._whole, split=split, step=step, last=True)
            finally:
                records.close()

    async def reward(self, sample: Sample) -> Streamed:
        """The row's number, on the record before it is handed out.

        Raises:
            JudgementError: see `Stream.reward`.
        """
        submitted_at = time.time()
        streamed = await self._stream.reward(sample)
        self._record(sample, streamed.reward, submitted_at, streamed)
        return streamed

    async def score(self, sample: Sample) -> Reward:
        """The sample's reward as it is, without a stand-in, on the record.

        Raises:
            DataError, JudgementError, ClosedError: see `Engine.score`.
        """
        return await self._scored(sample)

    async def score_all(self, samples: Sequence[Sample]) -> list[Reward]:
        """The rewards of all samples, in order; groups are the rows that share a ``group``.

        Raises:
            DataError, JudgementError, ClosedError: see `Engine.score_all`.
        """
        submitted_at = time.time()
        rewards = await self._engine.score_all(samples)
        for sample, reward in zip(samples, rewards, strict=True):
            self._record(sample, reward, submitted_at)
        return rewards

    async def score_each(
        self, samples: Sequence[Sample]
    ) -> AsyncGenerator[tuple[int, Reward], None]:
        """Each sample's index and reward as soon as that is final; see `score_all`."""
        submitted_at = time.time()
        finality = Finality(samples, self._engine.config.on_failure)
        rewards = one_by_one(lambda told: self._engine.score_all(samples, on_reward=told), finality)
        async with aclosing(rewards):
            async for index, reward in rewards:
                self._record(samples[index], reward, submitted_at)
                yield index, reward

    async def answer(self, ask: ForwardedRequest) -> tuple[JudgementResult, bool]:
        """What a judgement brings that another shard asks for; see `Engine.answer`."""
        return await self._engine.answer(ask)

    async def report(self) -> ShardLoad:
        """How this shard stands."""
        lanes = self._engine.lanes
        return ShardLoad(
            slots=lanes.slots,
            held=lanes.held,
            demand=lanes.in_flight + lanes.waiting,
            stats=self._engine.stats(),
            rows=self._engine.health.gathered(),
        )

    def look(self, rows: Sequence[StepRow]) -> None:
        """Look at the rewards of all shards for alarms; the first shard does."""
        self._engine.health.look(rows)

    async def take(self, slots: int) -> ShardLoad:
        """How this shard stands with `slots` of the job's as its own."""
        self._engine.lanes.divide(slots)
        return await self.report()

    def deposit(self, samples: Iterable[Sample]) -> None:
        """Begin to judge `samples`, each of which `redeem` fetches later."""
        self._tickets.deposit(samples)

    async def redeem(self, sample: Sample, *, of: int | None = None) -> Reward:
        """The reward of a sample that was handed in with `deposit`, as it is, on the record.

        Args:
            sample: what was handed in.
            of: how many of its group will be fetched, where that is known: it waits for no other.

        Raises:
            DataError, JudgementError, ClosedError: see `Engine.score`.
        """
        if of is not None and sample.group is not None:
            self._tickets.deposit([sample])  # takes its seat first, in a hub that was started anew
            asyncio.get_running_loop().call_soon(self._engine.groups.expect, sample.group, of)
        return await self._tickets.redeem(sample)

    def give_up(self, tickets: Iterable[str]) -> None:
        """Stop judging samples that nobody will redeem; see `zerowait.hub.tickets.ticket_of`."""
        self._tickets.give_up(tickets)

    async def stats(self) -> Stats:
        """A frozen snapshot of the whole job, or of this shard of it."""
        return self._engine.stats()

    async def _scored(self, sample: Sample, *, ticket: str = "") -> Reward:
        submitted_at = time.time()
        reward = await self._engine.score(sample)
        self._record(sample, reward, submitted_at, ticket=ticket)
        return reward

    def _whole(self) -> Stats:
        return merged_stats([self._engine.stats(), *self._others()])

    def _record(
        self,
        sample: Sample,
        reward: Reward,
        submitted_at: float,
        streamed: Streamed | None = None,
        *,
        ticket: str = "",
    ) -> None:
        if self._records is None:
            return
        self._place = (sample.split, sample.step)
        self._records.reward(
            RewardRecord(
                sample=sample,
                reward=reward,
                trained_on=reward.value if streamed is None else streamed.trained_on,
                stand_in="" if streamed is None else streamed.stand_in,
                ticket=ticket,
                submitted_at=submitted_at,
                settled_at=time.time(),
            )
        )
        if self._keeps_stats:
            self._recorded_s = asyncio.get_running_loop().time()
            kept = self._records.stats(self._whole, split=sample.split, step=sample.step)
            if not kept and self._flushing is None:
                self._flush_in(_QUIET_S)

    def _flush_in(self, wait_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._flushing = loop.call_later(wait_s, self._flush_when_quiet)

    def _flush_when_quiet(self) -> None:
        """Put the counters on the record once no reward has come for a moment.

        A hub under Ray is killed with its job, and the last rewards have to be among them.
        """
        self._flushing = None
        left_s = self._recorded_s + _QUIET_S - asyncio.get_running_loop().time()
        if left_s > 0:
            self._flush_in(left_s)
        elif self._records is not None:
            split, step = self._place
            try:
                self._records.stats(self._whole, split=split, step=step, last=True)
            except OSError as error:  # whoever hands in the next row is told
                _log.warning("the counters could not be kept: %s", error)
