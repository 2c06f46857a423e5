"""Everybody whom an engine may ask for verdicts, made from the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from zerowait.client import JudgeClient, Lanes, Ledger, Metered, Secret, Transport
from zerowait.config import RewardConfig
from zerowait.engine.bench_plan import BenchPlan
from zerowait.engine.budget import tokens
from zerowait.engine.comparing import AgainstReference, Comparer
from zerowait.engine.judgements import Judging, OneJudge, OnePanel
from zerowait.engine.judging import Bench, Shared
from zerowait.judge import in_words_of, well_formed


class Supplies(msgspec.Struct, frozen=True, kw_only=True):
    """What the judges of an engine are asked with.

    Args:
        keys: of each judge's endpoints, in their order.
        transport: how requests travel.
        lanes: where slots and quota are handed out.
        ledger: of the budget.
        shared: flights, store, listener and partition.
    """

    keys: Mapping[str, Sequence[str | None]]
    transport: Transport
    lanes: Lanes
    ledger: Ledger
    shared: Shared


class Benches:
    """The judges and panels of a configuration, by name.

    Args:
        by_name: each judge's bench.
        judges: whom a component may ask about one sample.
        comparers: whom it may ask about siblings.
    """

    def __init__(self, config: RewardConfig, plan: BenchPlan, supplies: Supplies) -> None:
        self.by_name: dict[str, Bench] = {}
        self.judges: dict[str, Judging] = {}
        self.comparers: dict[str, Comparer] = {}
        for name, procedure in plan.procedures.items():
            bench = self.by_name[name] = _bench(name, config, plan, supplies)
            if procedure.comparison is None:
                self.judges[name] = OneJudge(bench, procedure)
                continue
            listener = supplies.shared.listener
            comparer = Comparer(name, bench, procedure.comparison, listener=listener)
            if procedure.comparison.against == "group":
                self.comparers[name] = comparer
            else:
                self.judges[name] = AgainstReference(comparer)
        known = {name: bounds for name, bounds in plan.bounds.items() if bounds is not None}
        panels = {name: OnePanel(p, self.judges, known) for name, p in config.panels.items()}
        self.judges |= panels


def _bench(name: str, config: RewardConfig, plan: BenchPlan, supplies: Supplies) -> Bench:
    judge, listener = config.judges[name], supplies.shared.listener
    meter = Metered(
        supplies.transport,
        judge=name,
        prices=config.prices,
        usage=tokens,
        ledger=supplies.ledger,
        listener=listener,
    )
    client = JudgeClient(
        endpoints=judge.endpoints,
        keys=[None if key is None else Secret(key) for key in supplies.keys[name]],
        traffic=config.traffic,
        transport=meter,
        lanes=supplies.lanes,
        well_formed=well_formed,
        in_words_of=in_words_of,
        listener=listener,
    )
    bench = Bench(
        name, judge, plan.rubrics[name], client=client, meter=meter, shared=supplies.shared
    )
    bench.knows(plan.procedures[name].questions)
    return bench
