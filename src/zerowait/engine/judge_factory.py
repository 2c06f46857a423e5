"""Builds the judges and panels of a configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from zerowait.client import (
    CostMeter,
    EndpointStates,
    JudgeClient,
    Ledger,
    MeteringTransport,
    Secret,
    Transport,
)
from zerowait.config import RewardConfig
from zerowait.engine.budget import Budgets, in_training
from zerowait.engine.groups.comparer import Comparer, GroupComparer, ReferenceRunner
from zerowait.engine.judging.cached_judge import CachedJudge, JobContext
from zerowait.engine.judging.plan import JudgePlan
from zerowait.engine.judging.recorded_judge import RecordedJudge
from zerowait.engine.judging.result import JudgementResult
from zerowait.engine.judging.runner import JudgeRunner, PanelRunner, SingleJudgeRunner
from zerowait.engine.partition import ForwardedRequest
from zerowait.engine.serving.servers import JudgeServers
from zerowait.judge import body_for_api, decode_reply
from zerowait.types import Outcome, Sample


class JudgeDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """What the judges of an engine need.

    Args:
        keys: the API keys of each judge's endpoints, in their order.
        transport: sends requests.
        endpoint_states: limiter, quota and circuit breaker of each endpoint.
        budgets: what requests are paid from.
        shared: calls in flight, cache, listener and partition.
        servers: of judges that are served for the job; None: there are none.
    """

    keys: Mapping[str, Sequence[Secret | None]]
    transport: Transport
    endpoint_states: EndpointStates
    budgets: Budgets
    shared: JobContext
    servers: JudgeServers | None = None


class JudgeFactory:
    """The judges and panels of a configuration, by name.

    Args:
        config: of the rewards.
        plan: how each judge comes to its verdict.
        dependencies: shared by all of them.

    Attributes:
        judges: those that judge one sample.
        comparers: those that compare the responses of a prompt group.
    """

    def __init__(
        self, config: RewardConfig, plan: JudgePlan, dependencies: JudgeDependencies
    ) -> None:
        self._config, self._plan, self._dependencies = config, plan, dependencies
        budgets = dependencies.budgets
        self._training = {name: self._cached(name, budgets.training) for name in plan.procedures}
        self._validation: dict[str, CachedJudge] = {}
        self.judges: Mapping[str, JudgeRunner]
        self.comparers: Mapping[str, GroupComparer]
        self.judges, self.comparers = self._runners(self._training)
        if budgets.validation is None:
            return
        for name, judge in self._training.items():
            meter = CostMeter(name, config.prices)
            client = self._client(name, budgets.validation, meter)
            self._validation[name] = judge.paid_from(budgets.validation, client=client)
        judges, comparers = self._runners(self._validation)
        self.judges = {n: _BudgetedJudge(one, judges[n]) for n, one in self.judges.items()}
        self.comparers = {
            n: _BudgetedComparer(one, comparers[n]) for n, one in self.comparers.items()
        }

    async def answer(self, ask: ForwardedRequest) -> tuple[JudgementResult, bool]:
        """The result that another engine asked for; see `CachedJudge.answer`."""
        if self._dependencies.servers is not None:
            await self._dependencies.servers.wait_ready()
        judges = self._validation if ask.apart else self._training
        return await judges[ask.judge].answer(ask)

    def _cached(self, name: str, ledger: Ledger) -> CachedJudge:
        judge = self._config.judges[name]
        meter = CostMeter(name, self._config.prices)
        shared = self._dependencies.shared
        make = CachedJudge if shared.replay is None else RecordedJudge
        cached = make(
            judge,
            self._plan.rubrics[name],
            client=self._client(name, ledger, meter),
            meter=meter,
            ledger=ledger,
            shared=shared,
        )
        cached.set_questions(self._plan.procedures[name].questions)
        return cached

    def _client(self, name: str, ledger: Ledger, meter: CostMeter) -> JudgeClient:
        """The client of the judge `name` at the expense of one budget."""
        judge, listener = self._config.judges[name], self._dependencies.shared.listener
        endpoints, keys = judge.endpoints, self._dependencies.keys[name]
        if self._is_served(name):
            copies = [
                (each, key)
                for one, key in zip(endpoints, keys, strict=True)
                for each in one.replicas
            ]
            endpoints, keys = [each for each, _ in copies], [key for _, key in copies]
            for endpoint in endpoints:  # one that is restarted is waited for, whenever it died
                self._dependencies.endpoint_states.of(endpoint).breaker.has_answered = True
        decode = partial(decode_reply, endings=judge.endings)
        transport = self._dependencies.transport
        if self._config.prices:
            transport = MeteringTransport(
                transport, meter, decode=decode, ledger=ledger, listener=listener
            )
        return JudgeClient(
            endpoints=endpoints,
            keys=keys,
            traffic=self._config.traffic,
            transport=transport,
            endpoint_states=self._dependencies.endpoint_states,
            decode=decode,
            translate=body_for_api,
            usage=meter.usage,
            listener=listener,
        )

    def _is_served(self, name: str) -> bool:
        endpoints = self._config.judges[name].endpoints
        return any(each.serve is not None or each.is_verls for each in endpoints)

    def _runners(
        self, cached: Mapping[str, CachedJudge]
    ) -> tuple[dict[str, JudgeRunner], dict[str, GroupComparer]]:
        """The runners and comparers that ask these judges."""
        judges: dict[str, JudgeRunner] = {}
        comparers: dict[str, GroupComparer] = {}
        listener = self._dependencies.shared.listener
        for name, procedure in self._plan.procedures.items():
            if procedure.comparison is None:
                judges[name] = SingleJudgeRunner(cached[name], procedure)
                continue
            comparer = Comparer(name, cached[name], procedure.comparison, listener=listener)
            if procedure.comparison.against == "group":
                comparers[name] = comparer
            else:
                judges[name] = ReferenceRunner(comparer)
        if (servers := self._dependencies.servers) is not None:
            for name in filter(self._is_served, [*judges]):
                judges[name] = _ServedJudge(judges[name], servers)
            for name in filter(self._is_served, [*comparers]):
                comparers[name] = _ServedComparer(comparers[name], servers)
        known = {name: bounds for name, bounds in self._plan.bounds.items() if bounds is not None}
        panels = self._config.panels
        return judges | {n: PanelRunner(p, judges, known) for n, p in panels.items()}, comparers


class _ServedJudge:
    """One judge whose servers are started for the job: it is asked once they have answered."""

    def __init__(self, judge: JudgeRunner, servers: JudgeServers) -> None:
        self._judge, self._servers = judge, servers

    async def judge(self, sample: Sample, *, component: str = "") -> Outcome:
        await self._servers.wait_ready()
        return await self._judge.judge(sample, component=component)


class _ServedComparer:
    """The same for a judge that compares responses."""

    def __init__(self, comparer: GroupComparer, servers: JudgeServers) -> None:
        self._comparer, self._servers = comparer, servers

    @property
    def quorum(self) -> float:
        return self._comparer.quorum

    async def compare(self, samples: Sequence[Sample], *, component: str) -> list[Outcome]:
        await self._servers.wait_ready()
        return await self._comparer.compare(samples, component=component)


class _BudgetedJudge:
    """One judge, paid from the training budget for the split ``train``, else from validation's."""

    def __init__(self, training: JudgeRunner, validation: JudgeRunner) -> None:
        self._training, self._validation = training, validation

    async def judge(self, sample: Sample, *, component: str = "") -> Outcome:
        runner = self._training if in_training(sample) else self._validation
        return await runner.judge(sample, component=component)


class _BudgetedComparer:
    """The same for a judge that compares responses."""

    def __init__(self, training: GroupComparer, validation: GroupComparer) -> None:
        self._training, self._validation = training, validation

    @property
    def quorum(self) -> float:
        return self._training.quorum

    async def compare(self, samples: Sequence[Sample], *, component: str) -> list[Outcome]:
        comparer = self._training if all(map(in_training, samples)) else self._validation
        return await comparer.compare(samples, component=component)
