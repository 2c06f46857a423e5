"""Counts of what an engine did, kept by listening to its events."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from zerowait.client import EndpointStates
from zerowait.engine.monitor.failure_reasons import FailureReasons
from zerowait.events import (
    AnchorsMeasured,
    Drift,
    Event,
    HealthAlarm,
    JudgeDrifted,
    JudgementSettled,
    ModelChanged,
    RequestCharged,
    RequestEnded,
    RequestHedged,
    RequestRetried,
    ResponsesCompared,
    RewardSettled,
    StoreFailed,
)
from zerowait.types import Abstain, Reward

_LATENCIES_KEPT = 4096
_ALARMS_KEPT = 100


class JudgeStats(msgspec.Struct, frozen=True, kw_only=True):
    """One judge's part of `Stats`; the words mean the same."""

    asked: int = 0
    cached: int = 0
    joined: int = 0
    abstained: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    spent_usd: float = 0.0
    comparisons: int = 0
    inconsistent: int = 0


class AnchorStats(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's anchors: measurements so far, alarms so far, and the latest drift."""

    measurements: int = 0
    alarms: int = 0
    since_first: Drift | None = None
    from_reference: Drift | None = None


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen snapshot of an engine.

    Args:
        submitted: samples handed in. settled: samples whose reward is known.
        given_up: samples that ended without a reward: their caller stopped waiting, or an exception
            was raised, also because the reward could not be recorded. What is neither settled nor
            given up is being scored.
        abstained: settled samples without a value.
        asked: judgements for which a judge was asked. cached: answered from the cache.
        joined: identical to a judgement in flight, and answered with it.
        requests: HTTP attempts that ended. retries: attempts beyond the first.
        hedges: late requests sent once more. hedge_wins: of these, answered first.
        store_failures: reads and writes of the cache that failed.
        model_changes: how often a judge turned out to serve another model than before.
        abstentions: judgements that were not reached, by kind.
        reasons: the same by kind and by the providers' own words, the most frequent first; numbers
            and names of requests in them are left out.
        comparisons: pairs of responses about which a judge's verdict was reached.
        inconsistent: of these, pairs about which two answers disagreed.
        prompt_tokens, completion_tokens: as the judges reported them.
        spent_usd: by this engine, on models that have a price; a request that brought no bill
            counts with its worst case.
        judges: the same counts by judge; anchors that were asked are among them.
        anchors: the drift of each judge that has anchors.
        components: by component of the reward; here ``spent_usd`` is what its replies cost, without
            requests that brought none.
        budget_usd: ``traffic.budget_usd``.
        budget_spent_usd: under the budget's name so far, earlier runs included.
        budget_reserved_usd: for requests that have no bill yet, and for those of killed processes.
        validation_budget_usd, validation_budget_spent_usd, validation_budget_reserved_usd:
            likewise, of ``traffic.validation_budget_usd``.
        in_flight: requests being answered now. waiting: requests in line for a slot.
        peak_in_flight: the most requests in flight so far. limit: the concurrency limit now.
        limits: with ``concurrency: auto``, what `limit` is made of, by endpoint and model.
        latency_p50_s, latency_p95_s, latency_p99_s: of the latest answered attempts.
        loop_lag_p99_s: how late the engine's loop ran, over about the last ten minutes.
        loop_blocked_by: the function that blocked it last, or blocks it now; empty for none.
        alarms: about the health of the rewards, the latest 100.
        alarms_on: how many components the last finished training step had each alarm for.
    """

    submitted: int = 0
    settled: int = 0
    given_up: int = 0
    abstained: int = 0
    asked: int = 0
    cached: int = 0
    joined: int = 0
    requests: int = 0
    retries: int = 0
    hedges: int = 0
    hedge_wins: int = 0
    store_failures: int = 0
    model_changes: int = 0
    abstentions: dict[str, int] = {}
    reasons: dict[str, int] = {}
    prompt_tokens: int = 0
    completion_tokens: int = 0
    spent_usd: float = 0.0
    comparisons: int = 0
    inconsistent: int = 0
    judges: dict[str, JudgeStats] = {}
    anchors: dict[str, AnchorStats] = {}
    components: dict[str, JudgeStats] = {}
    budget_usd: float | None = None
    budget_spent_usd: float = 0.0
    budget_reserved_usd: float = 0.0
    validation_budget_usd: float | None = None
    validation_budget_spent_usd: float = 0.0
    validation_budget_reserved_usd: float = 0.0
    in_flight: int = 0
    waiting: int = 0
    peak_in_flight: int = 0
    limit: int = 0
    limits: dict[str, int] = {}
    latency_p50_s: float = 0.0
    latency_p95_s: float = 0.0
    latency_p99_s: float = 0.0
    loop_lag_p99_s: float = 0.0
    loop_blocked_by: str = ""
    alarms: list[HealthAlarm] = []
    alarms_on: dict[str, int] = {}

    @property
    def hit_rate(self) -> float:
        """Share of judgements that needed no request to a judge, in [0, 1]."""
        total = self.asked + self.cached + self.joined
        return (self.cached + self.joined) / total if total else 0.0


class JudgeCounts(NamedTuple):
    """Some counts of `Stats`; the words mean the same."""

    asked: int = 0
    cached: int = 0
    joined: int = 0
    retries: int = 0
    hedges: int = 0
    spent_usd: float = 0.0


class _Counts:
    """The counts of one judge or component."""

    __slots__ = (
        *("abstained", "comparisons", "completion_tokens", "inconsistent", "prompt_tokens"),
        *("sources", "spent_usd"),
    )

    def __init__(self) -> None:
        self.sources: Counter[str] = Counter()
        self.abstained = self.prompt_tokens = self.completion_tokens = 0
        self.comparisons = self.inconsistent = 0
        self.spent_usd = 0.0

    def settled(self, event: JudgementSettled) -> None:
        self.sources[event.source] += 1
        self.abstained += isinstance(event.outcome, Abstain)
        if event.source == "asked":
            self.prompt_tokens += event.prompt_tokens
            self.completion_tokens += event.completion_tokens

    def compared(self, event: ResponsesCompared) -> None:
        self.comparisons += event.comparisons
        self.inconsistent += event.inconsistent

    def stats(self) -> JudgeStats:
        return JudgeStats(
            asked=self.sources["asked"],
            cached=self.sources["cache"],
            joined=self.sources["joined"],
            abstained=self.abstained,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            spent_usd=self.spent_usd,
            comparisons=self.comparisons,
            inconsistent=self.inconsistent,
        )


class StatsCollector:
    """A listener that counts; `snapshot` is what it counted.

    Attributes:
        submitted: samples handed in.
        pending: of these, those that are being scored.
        given_up: of these, those that ended without a reward.
    """

    def __init__(self) -> None:
        self.submitted = self.pending = self.given_up = 0
        self._abstained = self._hedge_wins = self._lost = 0
        self._events: Counter[type[Event]] = Counter()
        self._judges: defaultdict[str, _Counts] = defaultdict(_Counts)
        self._components: defaultdict[str, _Counts] = defaultdict(_Counts)
        self._anchors: dict[str, AnchorStats] = {}
        self._kinds: Counter[str] = Counter()
        self._reasons = FailureReasons()
        self._latencies: deque[float] = deque(maxlen=_LATENCIES_KEPT)
        self._alarms: deque[HealthAlarm] = deque(maxlen=_ALARMS_KEPT)

    def __call__(self, event: Event) -> None:
        """Count one event."""
        self._events[type(event)] += 1
        match event:
            case RewardSettled(reward=reward):
                self._abstained += reward.value is None
            case JudgementSettled():
                self._judges[event.judge].settled(event)
                component = self._components[event.component]
                component.settled(event)
                component.spent_usd += event.cost_usd if event.source == "asked" else 0.0
                if isinstance(event.outcome, Abstain):
                    self._kinds[event.outcome.kind.value] += 1
                    self._reasons.add(event.outcome)
            case ResponsesCompared():
                self._judges[event.judge].compared(event)
                self._components[event.component].compared(event)
            case AnchorsMeasured() | JudgeDrifted():
                known = self._anchors.get(event.judge, AnchorStats())
                self._anchors[event.judge] = _with(known, event)
            case RequestCharged():
                self._judges[event.judge].spent_usd += event.usd
            case RequestEnded(status=200):
                self._latencies.append(event.latency_s)
            case HealthAlarm():
                self._alarms.append(event)
            case RequestHedged():
                self._hedge_wins += event.won
            case _:
                pass

    def give_up(self, rewards: Iterable[Reward]) -> None:
        """Count these, which were settled, as given up: their callers get an error instead."""
        for reward in rewards:
            self._lost += 1
            self._abstained -= reward.value is None

    def judge_counts(self) -> JudgeCounts:
        """The counts of which a step's metrics are differences; cheap enough for each reward."""
        asked = cached = joined = 0
        usd = 0.0
        for judge in self._judges.values():
            sources = judge.sources
            asked += sources["asked"]
            cached += sources["cache"]
            joined += sources["joined"]
            usd += judge.spent_usd
        retries, hedges = self._events[RequestRetried], self._events[RequestHedged]
        return JudgeCounts(asked, cached, joined, retries, hedges, usd)

    def snapshot(self, endpoint_states: EndpointStates) -> Stats:
        """The counts so far, with the state of `endpoint_states` now."""
        ordered = sorted(self._latencies)
        # copies, because another thread may ask while the first judgement of a judge is counted
        judges = {name: judge.stats() for name, judge in self._judges.copy().items()}
        return Stats(
            submitted=self.submitted,
            given_up=self.given_up + self._lost,
            settled=self._events[RewardSettled] - self._lost,
            abstained=self._abstained,
            asked=sum(judge.asked for judge in judges.values()),
            cached=sum(judge.cached for judge in judges.values()),
            joined=sum(judge.joined for judge in judges.values()),
            requests=self._events[RequestEnded],
            retries=self._events[RequestRetried],
            hedges=self._events[RequestHedged],
            hedge_wins=self._hedge_wins,
            store_failures=self._events[StoreFailed],
            model_changes=self._events[ModelChanged],
            abstentions=dict(sorted(self._kinds.items())),
            reasons=self._reasons.most_common(),
            prompt_tokens=sum(judge.prompt_tokens for judge in judges.values()),
            completion_tokens=sum(judge.completion_tokens for judge in judges.values()),
            spent_usd=sum(judge.spent_usd for judge in judges.values()),
            comparisons=sum(judge.comparisons for judge in judges.values()),
            inconsistent=sum(judge.inconsistent for judge in judges.values()),
            judges=judges,
            anchors=dict(self._anchors),
            components={name: part.stats() for name, part in self._components.copy().items()},
            in_flight=endpoint_states.in_flight,
            waiting=endpoint_states.waiting,
            peak_in_flight=endpoint_states.peak,
            limit=endpoint_states.limit,
            limits=endpoint_states.limits(),
            alarms=list(self._alarms),
            latency_p50_s=quantile(ordered, 0.5),
            latency_p95_s=quantile(ordered, 0.95),
            latency_p99_s=quantile(ordered, 0.99),
        )


def _with(known: AnchorStats, event: AnchorsMeasured | JudgeDrifted) -> AnchorStats:
    if isinstance(event, JudgeDrifted):
        return msgspec.structs.replace(known, alarms=known.alarms + 1)
    return msgspec.structs.replace(
        known,
        measurements=event.measurement,
        since_first=event.since_first,
        from_reference=event.from_reference,
    )


def quantile(ordered: list[float], q: float) -> float:
    """The value at or below which a share `q` of the sorted values lies; 0 for no values.

    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.0
    """
    if not ordered:
        return 0.0
    return ordered[max(0, min(len(ordered) - 1, round(q * len(ordered)) - 1))]
