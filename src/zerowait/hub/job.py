"""The hub of a job: one engine for all its workers, with streaming rewards, tickets, a record."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from zerowait.config import RewardConfig, load_config
from zerowait.engine import (
    ALARMS,
    Engine,
    ForwardedRequest,
    JudgementCounts,
    JudgementResult,
    Partition,
    Stats,
    StepRow,
    failure_reason,
)
from zerowait.engine.final_rewards import FinalRewards, stream_final
from zerowait.engine.recorded import RecordedEngine
from zerowait.engine.serving.servers import LOGS, JudgeServers, LocalServers
from zerowait.events import Event, HealthAlarm, JudgementSettled
from zerowait.hub.shard_stats import merged_stats
from zerowait.hub.slots import ShardLoad
from zerowait.hub.streaming import Stream, Streamed
from zerowait.hub.tickets import Tickets, ticket_of
from zerowait.record import RunRecord
from zerowait.types import Abstain, Reward, Sample

_MAX_REASONS: Final = 20

_log = logging.getLogger(__name__)


class _LogListener:
    """Logs health alarms, and each of the first 20 reasons why judgements failed, once."""

    def __init__(self) -> None:
        self._reasons: set[str] = set()

    def __call__(self, event: Event) -> None:
        match event:
            case HealthAlarm():
                about = f" ({event.component})" if event.component else ""
                says = f"{ALARMS[event.kind]}: {event.why}"
                _log.warning("step %d: %s%s: %s", event.step, event.kind, about, says)
            case JudgementSettled(outcome=Abstain() as failed):
                if len(self._reasons) >= _MAX_REASONS:
                    return
                reason = failure_reason(failed)
                if reason not in self._reasons:
                    self._reasons.add(reason)
                    once = "told once; stats() and the report count"
                    _log.warning("judge %s: %s (%s)", event.judge, reason, once)
            case _:
                pass


class JobHub:
    """The hub of a job, in this process; opened and closed with ``async with``.

    Args:
        config: a path to a ``reward.yaml``, a mapping, or a `RewardConfig`.
        record: the folder of the run's record; None keeps none.
        partition: which judgements this hub owns, where it is one shard of several.
        other_shards: the latest statistics of the other shards, which the first one records.
        servers: see `Engine`; None: on this machine, with their logs in the folder of the record.
    """

    def __init__(
        self,
        config: str | Path | Mapping[str, Any] | RewardConfig,
        *,
        record: Path | None = None,
        partition: Partition | None = None,
        other_shards: Callable[[], Sequence[Stats]] = list,
        servers: Callable[[RewardConfig], JudgeServers] | None = None,
    ) -> None:
        try:
            loaded = load_config(config)
        finally:
            del config  # a mapping may hold a key, and a traceback may show local variables
        if servers is None and record is not None:
            servers = partial(LocalServers, folder=record / LOGS)
        self._other_shards = other_shards
        self._record: RunRecord | None = None
        if record is not None:
            counts = partition is None or partition.shard.index == 0
            stats = self._job_stats if counts else None
            self._record = RunRecord(record, loaded.record, stats=stats, config=loaded)
        self._engine = Engine(
            loaded,
            listener=_LogListener(),
            partition=partition,
            servers=servers,
            recorder=self._record,
        )
        self._recorded = RecordedEngine(self._engine, self._record)
        group_deadline_s = self._engine.config.traffic.group_deadline_s
        self._stream = Stream(self._engine, group_deadline_s=group_deadline_s)
        self._tickets = Tickets(lambda sample: self.score(sample, ticket=ticket_of(sample)))

    async def __aenter__(self) -> Self:
        await self._engine.__aenter__()
        try:
            if self._record is not None:
                self._record.open()
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
            if self._record is not None:
                self._record.close()

    async def servers_ready(self) -> None:
        """See `Engine.servers_ready`."""
        await self._engine.servers_ready()

    async def reward(self, sample: Sample) -> Streamed:
        """The sample's reward and a number to train on, recorded before they are returned.

        Raises:
            JudgementError: see `Stream.reward`.
        """
        with self._recorded.naming(sample) as recorded:
            streamed = await self._stream.reward(sample)
            if recorded is not None:
                trained_on, source = streamed.trained_on, streamed.substitute_from
                recorded.rewarded(streamed.reward, trained_on=trained_on, substitute_from=source)
        return streamed

    async def score(self, sample: Sample, *, ticket: str = "") -> Reward:
        """The sample's reward, without a substitute where it abstained; recorded.

        Args:
            sample: to score.
            ticket: the name of its ticket, for the record; empty without one.

        Raises:
            DataError, JudgementError, ClosedError: see `Engine.score`.
        """
        return await self._recorded.score(sample, ticket=ticket)

    async def score_all(
        self, samples: Sequence[Sample], *, deadline_s: float | None = None
    ) -> list[Reward]:
        """The rewards of all samples, in order; groups are the rows that share a ``group``.

        Args:
            samples: to score.
            deadline_s: see `Engine.score_all`.

        Raises:
            DataError, JudgementError, ClosedError: see `Engine.score_all`.
        """
        return await self._recorded.score_all(samples, deadline_s=deadline_s)

    async def score_each(
        self, samples: Sequence[Sample]
    ) -> AsyncGenerator[tuple[int, Reward], None]:
        """Each sample's index and reward as soon as that is final; see `score_all`."""
        rewards = stream_final(
            lambda on_reward: self._recorded.score_all(samples, on_reward=on_reward),
            FinalRewards(samples, self._engine.config.on_failure),
        )
        async with aclosing(rewards):
            async for index, reward in rewards:
                yield index, reward

    async def answer(self, request: ForwardedRequest) -> tuple[JudgementResult, bool]:
        """The judgement that another shard requests from this one; see `Engine.answer`."""
        return await self._engine.answer(request)

    async def current_load(
        self,
        others: JudgementCounts = JudgementCounts(),  # noqa: B008 - frozen
    ) -> ShardLoad:
        """This shard's slots, demand and statistics now.

        Args:
            others: the judgements of the other shards, for ``traffic.give_up_after``.
        """
        self._engine.give_up.set_others(others)
        return self._load()

    def _load(self) -> ShardLoad:
        endpoints = self._engine.endpoint_states
        return ShardLoad(
            slots=endpoints.slots,
            held=endpoints.held,
            demand=endpoints.in_flight + endpoints.waiting,
            stats=self._engine.stats(),
            rows=self._engine.health.take_rows(),
            judgements=self._engine.give_up.counts,
        )

    def check_alarms(self, rows: Sequence[StepRow]) -> None:
        """Raise health alarms about the rewards of all shards; the first shard calls it."""
        self._engine.health.observe(rows)

    async def set_slots(self, slots: int) -> ShardLoad:
        """This shard's load once it has `slots` of the job's slots."""
        self._engine.endpoint_states.divide(slots)
        return self._load()

    def deposit(self, samples: Iterable[Sample]) -> None:
        """Begin to judge `samples`; `redeem` returns their rewards later."""
        self._tickets.deposit(samples)

    async def redeem(self, sample: Sample, *, of: int | None = None) -> Reward:
        """The reward of a deposited sample, without a substitute where it abstained; recorded.

        Args:
            sample: the deposited one; one that was not deposited is judged now.
            of: how many samples of its group will be redeemed, where that is known: the group is
                judged without the others.

        Raises:
            DataError, JudgementError, ClosedError: see `Engine.score`.
        """
        if of is not None and sample.group is not None:
            self._tickets.deposit([sample])  # a restarted hub needs it before `shrink`
            asyncio.get_running_loop().call_soon(self._engine.groups.shrink, sample.group, of)
        return await self._tickets.redeem(sample)

    def give_up(self, tickets: Iterable[str]) -> None:
        """Stop judging samples that will not be redeemed.

        Args:
            tickets: see `zerowait.hub.tickets.ticket_of`.
        """
        self._tickets.give_up(tickets)

    async def stats(self) -> Stats:
        """A frozen snapshot of the whole job, or of this shard of it."""
        return self._engine.stats()

    def _job_stats(self) -> Stats:
        stats, others = self._engine.stats(), self._other_shards()
        return merged_stats([stats, *others]) if others else stats
