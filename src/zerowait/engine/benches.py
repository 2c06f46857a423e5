"""From a configuration to judges that can be asked: the client, the meter and the bench of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zerowait.client import JudgeClient, Lanes, Ledger, Metered, Secret, Transport
from zerowait.config import RewardConfig
from zerowait.engine.bench_plan import BenchPlan
from zerowait.engine.budget import tokens
from zerowait.engine.comparing import AgainstReference, Comparer
from zerowait.engine.judgements import Judging, OneJudge, OnePanel
from zerowait.engine.judging import Bench, Shared
from zerowait.events import Listener
from zerowait.judge import well_formed


class Benches:
    """Makes the benches of an engine.

    Args:
        config: what judges there are.
        plan: the same, made ready to run.
        keys: of each judge's endpoints, in their order.
        transport: carries every request.
        lanes: where slots and quota are handed out.
        ledger: of what is spent.
        listener: hears of every attempt.
    """

    def __init__(  # noqa: PLR0913 - what the judges of a job share is told apart by name
        self,
        config: RewardConfig,
        plan: BenchPlan,
        keys: Mapping[str, Sequence[str | None]],
        *,
        transport: Transport,
        lanes: Lanes,
        ledger: Ledger,
        listener: Listener,
    ) -> None:
        self._config = config
        self._plan = plan
        self._keys = keys
        self._transport = transport
        self._lanes = lanes
        self._ledger = ledger
        self._listener = listener

    def everybody(self, shared: Shared) -> tuple[dict[str, Judging], dict[str, Comparer]]:
        """Whom a component may ask about a sample, and whom about siblings, by name."""
        judges: dict[str, Judging] = {}
        comparers: dict[str, Comparer] = {}
        for name, procedure in self._plan.procedures.items():
            if procedure.comparison is None:
                judges[name] = self.one(name, shared)
                continue
            bench = self._bench(name, shared)
            comparer = Comparer(name, bench, procedure.comparison, listener=self._listener)
            if procedure.comparison.against == "group":
                comparers[name] = comparer
            else:
                judges[name] = AgainstReference(comparer)
        bounds = {name: pair for name, pair in self._plan.bounds.items() if pair is not None}
        panels = {name: OnePanel(p, judges, bounds) for name, p in self._config.panels.items()}
        return judges | panels, comparers

    def one(self, name: str, shared: Shared) -> OneJudge:
        """The judge of single samples called `name`."""
        return OneJudge(self._bench(name, shared), self._plan.procedures[name])

    def _bench(self, name: str, shared: Shared) -> Bench:
        judge = self._config.judges[name]
        meter = Metered(
            self._transport,
            judge=name,
            prices=self._config.prices,
            usage=tokens,
            ledger=self._ledger,
            listener=self._listener,
        )
        client = JudgeClient(
            endpoints=judge.endpoints,
            keys=[None if key is None else Secret(key) for key in self._keys[name]],
            traffic=self._config.traffic,
            transport=meter,
            lanes=self._lanes,
            well_formed=well_formed,
            listener=self._listener,
        )
        rubric = self._plan.rubrics[name]
        return Bench(name, judge, rubric, client=client, meter=meter, shared=shared)
