"""The engine: samples in, rewards out, inside any running loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, get_args

import msgspec

from zerowait.cache import (
    LatencyFile,
    NoStore,
    Shard,
    SingleFlight,
    Store,
    latency_file,
    open_store,
)
from zerowait.client import EndpointStates, HttpTransport, Transport
from zerowait.config import RewardConfig, load_config
from zerowait.config.sandbox import RemoteSandboxSettings
from zerowait.engine.budget import Budgets, open_budgets
from zerowait.engine.combine import ExtraNumbers, combine, settle_groups
from zerowait.engine.components import ComponentRunner, Deadline
from zerowait.engine.concurrent_tasks import first_of, run_all
from zerowait.engine.credentials import credentials, sandbox_keys
from zerowait.engine.groups.comparer import GroupComparer
from zerowait.engine.groups.comparison_runner import ComparisonRunner
from zerowait.engine.groups.prompt_groups import STREAM, GroupMember, PromptGroups, group_by_group
from zerowait.engine.groups.shapes import Shapes, Tokenizer
from zerowait.engine.judge_factory import JudgeDependencies, JudgeFactory
from zerowait.engine.judging.anchors import AnchorWatch
from zerowait.engine.judging.cached_judge import JobContext
from zerowait.engine.judging.plan import check_row_rubrics
from zerowait.engine.judging.recorded_replies import RecordedReplies
from zerowait.engine.judging.result import JudgementResult
from zerowait.engine.judging.runner import JudgeRunner
from zerowait.engine.monitor.give_up import GiveUpCheck
from zerowait.engine.monitor.health_monitor import HealthMonitor
from zerowait.engine.monitor.loop_lag import LoopLagMonitor
from zerowait.engine.monitor.metrics_log import MetricsLog
from zerowait.engine.monitor.stall_watchdog import StallWatchdog
from zerowait.engine.monitor.stats import Stats, StatsCollector
from zerowait.engine.partition import ForwardedRequest, Partition
from zerowait.engine.plan import compile_plan
from zerowait.engine.pool.scorer_pool import ScorerPool
from zerowait.engine.sandbox.remote import RemoteSandbox
from zerowait.engine.sandbox.scoring import CodeScoring
from zerowait.engine.serving.servers import (
    JudgeServers,
    LocalServers,
    ServedTransport,
    needs_servers,
)
from zerowait.engine.turns import with_turns
from zerowait.errors import ClosedError, PortalMisuseError
from zerowait.events import (
    SAMPLE_UIDS,
    Event,
    JudgementSettled,
    Listener,
    LoopLagged,
    ModelChanged,
    NothingMoves,
    RewardSettled,
    ignore_event,
)
from zerowait.record import RECORDED
from zerowait.types import Outcome, Reward, Sample, check_sample, samples_in

_LOG = logging.getLogger(__name__)
_AT_ONCE = 2048
_RELEASED_S = 5.0
_OUTLIVED = (
    "the event loop that this engine was opened on has ended, and its connections with it: open "
    "and close an engine in one asyncio.run, or use zerowait.open, which has a loop of its own"
)
_ELSEWHERE = (
    "this engine was opened on another event loop: use it there, or use zerowait.open, which may "
    "be called from any loop and thread"
)
_LATENCIES_EVERY_S = 30.0


class Engine:
    """Computes rewards on the running event loop; opened and closed with ``async with``.

    Args:
        config: a path to a ``reward.yaml``, a mapping, or a `RewardConfig`.
        tokenizer: counts a response's tokens where a sample does not say how many it has.
        listener: called with every event, on the loop; must be quick. Its exceptions are logged.
        transport: sends requests; `HttpTransport` when None.
        environ: holds the variables of ``api_key_env``; None: the process's environment.
        partition: this engine's place among several that share a job's limits; None: it is alone.
        replay: the judgements of a run that is replayed, from which the judges are answered;
            None: they are asked.
        servers: starts the judges that are served for the job; None: on this machine, and opening
            the engine waits until they answer.
        recorder: called with the events that a record keeps, like `listener`; judgements then name
            the samples of `SAMPLE_UIDS`, and what their failed attempts brought.

    Raises:
        ConfigError, MissingExtraError: on construction, before any work starts.
    """

    def __init__(  # noqa: PLR0913 - each is a part of its environment
        self,
        config: str | Path | Mapping[str, Any] | RewardConfig,
        *,
        tokenizer: Tokenizer | None = None,
        listener: Listener = ignore_event,
        transport: Transport | None = None,
        environ: Mapping[str, str] | None = None,
        partition: Partition | None = None,
        replay: RecordedReplies | None = None,
        servers: Callable[[RewardConfig], JudgeServers] | None = None,
        recorder: Listener | None = None,
    ) -> None:
        try:
            self.config = load_config(config)
        finally:
            del config  # a mapping may hold a key, and a traceback may show local variables
        self.plan = compile_plan(self.config)
        self._keys = credentials(self.config, environ)
        self._sandbox_keys = sandbox_keys(self.config, self.plan.sandboxes, environ)
        self._given_transport = transport
        self._new_servers = servers or LocalServers
        self._servers: JudgeServers | None = None
        self._user_listener = listener
        self._recorder = recorder
        self._stats = StatsCollector()
        self._partition = partition
        self._replay = replay
        self._shard = Shard() if partition is None else partition.shard
        self.give_up = GiveUpCheck(self.config.traffic.give_up_after)
        self.endpoint_states = EndpointStates(
            self.config.traffic, listener=self._tell, parts=self._shard.of
        )
        self.groups = PromptGroups(self.plan.waits_for_siblings)
        self._has_groups = bool(self.groups.needed_by)
        self._turn_terms = self.plan.turn_terms
        self._shapes = Shapes(
            self.plan,
            deadline_s=self.config.traffic.group_deadline_s,
            count_tokens=None if tokenizer is None else lambda text: len(tokenizer.encode(text)),
        )
        self._extra = ExtraNumbers(self.plan.terms)
        self._open: AsyncExitStack | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._flights: SingleFlight[JudgementResult] = SingleFlight()
        self._comparisons: ComparisonRunner | None = None
        self._judge_factory: JudgeFactory | None = None
        self._steps: ComponentRunner | None = None
        self._budgets = Budgets()
        self._watchdog = StallWatchdog(
            self.endpoint_states, self._tell, self.config.traffic.timeout_s
        )
        self._latencies: LatencyFile | None = None
        self._latencies_due_s = 0.0
        self._lag = LoopLagMonitor(self._tell, on_probe=self._on_lag_probe)
        self._anchors = AnchorWatch(
            self.plan.anchors, self.endpoint_states, self._tell, stands_for=self._shard.of
        )
        self.health = HealthMonitor(self.plan, self._tell, alone=partition is None)
        self._metrics_log: MetricsLog | None = None
        if self.config.log_to.wanted:
            counts = self._stats
            self._metrics_log = MetricsLog(
                self.config, self.stats, counts.judge_counts, lambda: counts.pending
            )
        self._listeners = {kind: self._listeners_for(kind) for kind in get_args(Event)}

    async def __aenter__(self) -> Self:
        if self._open is not None or self._closed:
            raise ClosedError("an engine is opened once: make another one")
        self._loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            pool = ScorerPool(functions=self.plan.functions)
            stack.push_async_callback(pool.aclose)
            judges: Mapping[str, JudgeRunner] = {}
            comparers: Mapping[str, GroupComparer] = {}
            sandboxes: Mapping[RemoteSandboxSettings, RemoteSandbox] = {}
            if self.config.judges or self.plan.sandboxes:
                self._budgets = open_budgets(self.config)
                stack.push_async_callback(self._budgets.aclose)
                transport = self._given_transport or HttpTransport()
                stack.push_async_callback(transport.aclose)
                stack.push_async_callback(self.endpoint_states.aclose)
                if needs_servers(self.config):
                    servers = self._new_servers(self.config)
                    self._servers = await stack.enter_async_context(servers)
                    transport = ServedTransport(transport, servers)
                store = await open_store(self.config.cache, self._shard, listener=self._tell)
                stack.push_async_callback(store.aclose)
                sandboxes = self._remote_sandboxes(transport, store)
                self._remember_latencies(stack)
                await stack.enter_async_context(self._flights)
                shared = JobContext(
                    flights=self._flights,
                    store=store,
                    listener=self._tell,
                    partition=self._partition,
                    replay=self._replay,
                    is_recorded=self._recorder is not None,
                )
                dependencies = JudgeDependencies(
                    keys=self._keys,
                    transport=transport,
                    endpoint_states=self.endpoint_states,
                    budgets=self._budgets,
                    shared=shared,
                    servers=self._servers,
                )
                factory = JudgeFactory(self.config, self.plan.judges, dependencies)
                self._judge_factory = factory
                judges, comparers = factory.judges, factory.comparers
                await self._start_anchors(stack, dependencies)
            code = CodeScoring(sandboxes)
            stack.push_async_callback(code.aclose)
            self._lag.start()
            stack.callback(self._lag.stop)
            if self._metrics_log is not None:
                self._metrics_log.start()
                stack.push_async_callback(self._metrics_log.aclose)
            self._comparisons = ComparisonRunner(
                self.plan.comparisons, comparers, deadline_s=self.config.traffic.group_deadline_s
            )
            await stack.enter_async_context(self._comparisons)
            self._steps = ComponentRunner(
                self.plan,
                judges,
                self._comparisons,
                pool,
                code=code,
                pending=self._watchdog.pending,
            )
            self._open = stack.pop_all()
        return self

    def _remote_sandboxes(
        self, transport: Transport, store: Store
    ) -> Mapping[RemoteSandboxSettings, RemoteSandbox]:
        """The remote sandboxes of the configuration, with the limits and the cache of judges."""
        return {
            settings: RemoteSandbox(
                settings,
                self._sandbox_keys[settings],
                traffic=self.config.traffic,
                transport=transport,
                endpoint_states=self.endpoint_states,
                store=store,
                listener=self._tell,
            )
            for settings in self.plan.sandboxes
        }

    def _remember_latencies(self, stack: AsyncExitStack) -> None:
        """Load the latencies that an earlier process kept, and keep ours for the next one."""
        self._latencies = latency_file(self.config.cache, self._shard)
        if self._latencies is not None:
            self.endpoint_states.recall(self._latencies.load())
            self._latencies_due_s = time.monotonic() + _LATENCIES_EVERY_S
            stack.callback(self._keep_latencies)

    def _keep_latencies(self) -> None:
        if self._latencies is not None and (known := self.endpoint_states.latencies_s()):
            self._latencies.save(known)

    def _on_lag_probe(self) -> None:
        """Runs with each probe of the loop's lag: check for a stall, and save latencies."""
        self._watchdog.check()
        if self._latencies is not None and time.monotonic() >= self._latencies_due_s:
            self._latencies_due_s = time.monotonic() + _LATENCIES_EVERY_S
            self._keep_latencies()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self, *, drain_s: float = 0.0) -> None:
        """Close everything the engine owns. Idempotent.

        Args:
            drain_s: seconds in which requests already sent may still bring their answer into
                the cache; what was not sent yet is given up at once.

        Raises:
            PortalMisuseError: it was opened on another loop.
            ClosedError: the loop it was opened on has ended, and nothing could be drained.
        """
        stack = self._open
        if stack is None:
            return
        if self._is_elsewhere and not self._outlived:
            raise PortalMisuseError(_ELSEWHERE)
        self._open = self._steps = None
        self._closed = True
        if self._outlived:
            await _released(stack)
            raise ClosedError(_OUTLIVED)
        self.health.close()
        try:
            await self._anchors.aclose()
            if self._comparisons is not None:
                await self._comparisons.aclose()
            await self._flights.aclose(drain_s)
        finally:
            await stack.aclose()

    async def servers_ready(self) -> None:
        """Wait until the judges that are served for the job have answered once.

        Raises:
            ConfigError: one cannot be started; the end of its log is in the message.
        """
        if self._servers is not None:
            await self._servers.wait_ready()

    async def score(self, sample: Sample) -> Reward:
        """The reward of one sample.

        Where the configuration has a shape, or a judge that compares siblings, the sample needs
        ``group`` and ``group_size``, and the reward comes when all its siblings have been
        submitted.

        Raises:
            DataError: it is no Sample, or lacks what such a component needs.
            JudgementError: a judgement failed and its policy is ``raise``, or none was ever reached
                (``traffic.give_up_after``).
            ClosedError: the engine is not open, or the loop it was opened on has ended.
            PortalMisuseError: it was opened on another loop.
        """
        check_sample(sample, "score", many="score_all")
        return await self._score(sample, STREAM, sample.group_size)

    async def score_all(
        self,
        samples: Iterable[Sample],
        *,
        on_reward: Callable[[int, Reward], None] | None = None,
        deadline_s: float | None = None,
        uids: Sequence[str] = (),
    ) -> list[Reward]:
        """The rewards of all samples, in order; groups are the rows that share a ``group``.

        Args:
            samples: to score.
            on_reward: called with a sample's index and reward as soon as it is known, before the
                policy ``drop_group`` is applied.
            deadline_s: seconds from now; a component that is not known by then abstains with
                ``timeout``. None: no deadline.
            uids: the samples' names in a record, by which their judgements name them.

        Raises:
            As `score`, and the first one ends the rest. ConfigError: a wrong `deadline_s`.
        """
        until = None if deadline_s is None else Deadline.in_s(deadline_s)
        rows = samples_in(samples, "score_all", one="score")
        sizes = Counter(row.group for row in rows if row.group is not None)
        for row in rows:
            self._check(row, size=1)
        rewards: list[Reward | None] = [None] * len(rows)
        batch = object()

        async def one(index: int) -> None:
            row = rows[index]
            if uids:
                SAMPLE_UIDS.set((uids[index],))
            size = None if row.group is None else sizes[row.group]
            reward = rewards[index] = await self._score(row, batch, size, until)
            if on_reward is not None:
                on_reward(index, reward)

        try:
            at_once = max([_AT_ONCE, *sizes.values()])
            await run_all(group_by_group(rows), one, at_once=at_once)
        except* BaseException as errors:  # noqa: BLE001 - one cause says more than a group of them
            raise first_of(errors) from None
        done = [self._extra.filled(reward) for reward in rewards if reward is not None]
        return settle_groups(done, [row.group for row in rows], self.config.on_failure.quorum)

    async def answer(self, ask: ForwardedRequest) -> tuple[JudgementResult, bool]:
        """The result of a judge request that another engine of the job has forwarded.

        Returns:
            The result, and whether the request joined a call in flight.

        Raises:
            ClosedError: the engine is not open.
        """
        if self._open is None or self._judge_factory is None:
            raise ClosedError("the engine is not open: use it inside `async with`")
        return await self._judge_factory.answer(ask)

    def check(self, sample: Sample) -> None:
        """Raise a DataError when `sample` lacks what the configuration needs of each sample."""
        self._check(sample, size=1)
        check_row_rubrics(self.config, sample)

    def not_recorded(self, rewards: Iterable[Reward]) -> None:
        """Count these as given up: they could not be recorded, and their callers get the error."""
        self._stats.give_up(rewards)

    def stats(self) -> Stats:
        """A frozen snapshot of what happened so far."""
        counts = msgspec.structs.replace(
            self._stats.snapshot(self.endpoint_states),
            loop_lag_p99_s=self._lag.lag_p99_s,
            loop_blocked_by=self._lag.blocked_by,
            alarms_on=self.health.on,
        )
        return self._budgets.add_accounts(counts)

    @property
    def metrics_url(self) -> str | None:
        """What Prometheus scrapes, with ``log_to: [prometheus]``; None where it is not served."""
        return None if self._metrics_log is None else self._metrics_log.url

    async def _score(
        self, sample: Sample, batch: Hashable, size: int | None, until: Deadline | None = None
    ) -> Reward:
        steps = self._steps
        if steps is None:
            raise ClosedError("the engine is not open: use it inside `async with`")
        if self._loop is not asyncio.get_running_loop():
            raise ClosedError(_OUTLIVED) if self._outlived else PortalMisuseError(_ELSEWHERE)
        if self.give_up.is_due:
            self.give_up.check(asyncio.get_running_loop().time())
        submitted_at = time.time()
        if self._has_groups:
            self._check(sample, size=size)  # what is refused is not submitted
        self._stats.submitted += 1
        self._stats.pending += 1
        turns: dict[str, list[Outcome]] = {}
        is_known = False
        try:
            if self._has_groups:
                member = self.groups.join(batch, sample, size or 1)
                member.uids = SAMPLE_UIDS.get()
                outcomes = await self._grouped(steps, member, batch, until, turns)
            else:
                outcomes = await steps.outcomes(sample, until=until, turns=turns)
            if self.give_up.is_due:
                self.give_up.check(asyncio.get_running_loop().time())
            on_failure = self.config.on_failure
            if self._budgets.validation is not None:
                on_failure = self._budgets.policy(on_failure, sample)
            reward = combine(outcomes, self.plan.terms, on_failure)
            if self._extra.may_be_needed:
                reward = self._extra.filled(reward)
            if self._turn_terms:
                reward = with_turns(reward, sample, turns, self._turn_terms)
            is_known = True
        finally:
            self._stats.pending -= 1
            self._stats.given_up += not is_known
        self._tell(
            RewardSettled(
                sample=sample, reward=reward, submitted_at=submitted_at, settled_at=time.time()
            )
        )
        return reward

    @property
    def _is_elsewhere(self) -> bool:
        """Whether this is another event loop than the one that the engine was opened on."""
        return self._loop is not asyncio.get_running_loop()

    @property
    def _outlived(self) -> bool:
        """Whether the loop that the engine was opened on has ended."""
        return self._loop is not None and self._loop.is_closed()

    def _check(self, sample: Sample, *, size: int | None) -> None:
        self._shapes.check(sample)
        self.groups.check(sample, size=size)

    async def _grouped(
        self,
        steps: ComponentRunner,
        member: GroupMember,
        batch: Hashable,
        until: Deadline | None,
        turns: dict[str, list[Outcome]],
    ) -> dict[str, Any]:
        finished = False
        try:
            outcomes = await steps.outcomes(member.sample, member, until, turns)
            outcomes.update(await self._shapes.outcomes(member, outcomes))
            finished = True
        finally:
            member.group.set_rules_known(member, None)
            steps.leave(member)
            self.groups.leave(batch, member, finished=finished)
        return outcomes

    async def _start_anchors(self, stack: AsyncExitStack, dependencies: JudgeDependencies) -> None:
        """Start the measurements of drift, whose judges have no cache and share no call in flight.

        Of the engines that share a job the first one asks them, once for all.
        """
        if not self.plan.anchors or self._shard.index:
            return
        flights = await stack.enter_async_context(SingleFlight[JudgementResult]())
        shared = JobContext(
            flights=flights,
            store=NoStore(),
            listener=self._tell_of_anchor,
            is_recorded=self._recorder is not None,
        )
        own = msgspec.structs.replace(dependencies, shared=shared)
        judges = JudgeFactory(self.config, self.plan.judges, own).judges
        self._anchors.start({name: judges[name] for name in self.plan.anchors})
        stack.push_async_callback(self._anchors.aclose)

    def _listeners_for(self, kind: type[Event]) -> list[Listener]:
        """The engine's own listeners for one type of event; the user's receives all."""
        listeners: list[Listener] = [self._stats]
        if kind not in (NothingMoves, LoopLagged):
            listeners.append(self._watchdog)
        if kind is JudgementSettled:
            listeners.append(self.give_up)
        if kind is RewardSettled:
            listeners.append(self.health)
        if kind in (JudgementSettled, RewardSettled) and self.plan.anchors:
            listeners.append(self._anchors)
        if self._metrics_log is not None and kind in self._metrics_log.listens_to:
            listeners.append(self._metrics_log)
        if self._recorder is not None and kind in RECORDED:
            listeners.append(self._recorder)
        return listeners

    def _tell(self, event: Event) -> None:
        """Hand `event` to every listener for its type."""
        for listener in self._listeners[type(event)]:
            listener(event)
        if self._user_listener is ignore_event:
            return
        try:
            self._user_listener(event)
        except Exception:  # noqa: BLE001 - a listener costs no sample its reward
            _LOG.exception("the listener raised on %s", type(event).__name__)

    def _tell_of_anchor(self, event: Event) -> None:
        if not isinstance(event, ModelChanged):  # the judge itself reports it
            self._tell(event)


async def _released(stack: AsyncExitStack) -> None:
    """Free what needs no running loop, after it has ended: processes, threads and files."""
    with suppress(Exception):  # all that belongs to that loop refuses
        async with asyncio.timeout(_RELEASED_S):
            await stack.aclose()
