"""Everybody whom an engine may ask for verdicts, made from the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from zerowait.client import EndpointStates, JudgeClient, Ledger, Metered, Secret, Transport
from zerowait.config import RewardConfig
from zerowait.engine.budget import Budgets, in_training, tokens_used
from zerowait.engine.groups.comparer import Comparer, GroupComparer, ReferenceRunner
from zerowait.engine.judging.cached_judge import CachedJudge, SharedFlights
from zerowait.engine.judging.plan import JudgePlan
from zerowait.engine.judging.result import JudgementResult
from zerowait.engine.judging.runner import JudgeRunner, PanelRunner, SingleJudgeRunner
from zerowait.engine.partition import ForwardedRequest
from zerowait.judge import body_for_api, well_formed
from zerowait.types import Outcome, Sample


class JudgeDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """What the judges of an engine are asked with.

    Args:
        keys: of each judge's endpoints, in their order.
        transport: how requests travel.
        lanes: where slots and quota are handed out.
        budgets: what they are paid from.
        shared: flights, store, listener and partition.
    """

    keys: Mapping[str, Sequence[Secret | None]]
    transport: Transport
    lanes: EndpointStates
    budgets: Budgets
    shared: SharedFlights


class JudgeFactory:
    """The judges and panels of a configuration, by name.

    Args:
        judges: whom a component may ask about one sample.
        comparers: whom it may ask about siblings.
    """

    def __init__(self, config: RewardConfig, plan: JudgePlan, supplies: JudgeDependencies) -> None:
        self._config, self._plan, self._supplies = config, plan, supplies
        self._benches = {name: self._bench(name) for name in plan.procedures}
        self._apart: dict[str, CachedJudge] = {}
        self.judges: Mapping[str, JudgeRunner]
        self.comparers: Mapping[str, GroupComparer]
        self.judges, self.comparers = self._seated(self._benches)
        validation = supplies.budgets.validation
        if validation is None:
            return
        for name, bench in self._benches.items():
            meter, client = self._paid_from(validation, name)
            self._apart[name] = bench.apart(client=client, meter=meter)
        judges, comparers = self._seated(self._apart)
        self.judges = {n: _Judging(one, judges[n]) for n, one in self.judges.items()}
        self.comparers = {n: _Comparing(one, comparers[n]) for n, one in self.comparers.items()}

    async def answer(self, ask: ForwardedRequest) -> tuple[JudgementResult, bool]:
        """What another engine asked for; see `CachedJudge.answer`."""
        benches = self._apart if ask.apart else self._benches
        return await benches[ask.judge].answer(ask)

    def _bench(self, name: str) -> CachedJudge:
        meter, client = self._paid_from(self._supplies.budgets.training, name)
        judge, rubric = self._config.judges[name], self._plan.rubrics[name]
        shared = self._supplies.shared
        bench = CachedJudge(name, judge, rubric, client=client, meter=meter, shared=shared)
        bench.knows(self._plan.procedures[name].questions)
        return bench

    def _paid_from(self, ledger: Ledger, name: str) -> tuple[Metered, JudgeClient]:
        """How the judge `name` is asked at the expense of this budget."""
        judge, listener = self._config.judges[name], self._supplies.shared.listener
        meter = Metered(
            self._supplies.transport,
            judge=name,
            prices=self._config.prices,
            usage=tokens_used,
            ledger=ledger,
            listener=listener,
        )
        client = JudgeClient(
            endpoints=judge.endpoints,
            keys=self._supplies.keys[name],
            traffic=self._config.traffic,
            transport=meter,
            lanes=self._supplies.lanes,
            well_formed=partial(well_formed, endings=judge.endings),
            in_words_of=body_for_api,
            usage=meter.usage,
            listener=listener,
        )
        return meter, client

    def _seated(
        self, benches: Mapping[str, CachedJudge]
    ) -> tuple[dict[str, JudgeRunner], dict[str, Comparer]]:
        """The judges and the comparers that ask on these benches."""
        judges: dict[str, JudgeRunner] = {}
        comparers: dict[str, Comparer] = {}
        listener = self._supplies.shared.listener
        for name, procedure in self._plan.procedures.items():
            if procedure.comparison is None:
                judges[name] = SingleJudgeRunner(benches[name], procedure)
                continue
            comparer = Comparer(name, benches[name], procedure.comparison, listener=listener)
            if procedure.comparison.against == "group":
                comparers[name] = comparer
            else:
                judges[name] = ReferenceRunner(comparer)
        known = {name: bounds for name, bounds in self._plan.bounds.items() if bounds is not None}
        panels = self._config.panels
        return judges | {n: PanelRunner(p, judges, known) for n, p in panels.items()}, comparers


class _Judging:
    """One judge, paid from two budgets: that of the split ``train``, and that of all others."""

    def __init__(self, training: JudgeRunner, validation: JudgeRunner) -> None:
        self._training, self._validation = training, validation

    async def judge(self, sample: Sample, *, component: str = "") -> Outcome:
        payer = self._training if in_training(sample) else self._validation
        return await payer.judge(sample, component=component)


class _Comparing:
    """Likewise of a judge that compares."""

    def __init__(self, training: GroupComparer, validation: GroupComparer) -> None:
        self._training, self._validation = training, validation

    @property
    def quorum(self) -> float:
        return self._training.quorum

    async def compare(self, samples: Sequence[Sample], *, component: str) -> list[Outcome]:
        payer = self._training if all(map(in_training, samples)) else self._validation
        return await payer.compare(samples, component=component)
