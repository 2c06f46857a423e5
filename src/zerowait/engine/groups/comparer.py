"""Asking a judge to compare responses: pairs in both orders, or several in one ranking."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from zerowait.config import By, Comparison
from zerowait.engine.judging.cached_judge import CachedJudge
from zerowait.engine.judging.result import JudgementResult
from zerowait.events import Listener, ResponsesCompared
from zerowait.judge import (
    Match,
    Rank,
    by_content,
    extra_text,
    lineup,
    pairings,
    rank_responses,
    ranked_matches,
    shared_texts,
    windows,
)
from zerowait.types import Abstain, FailureKind, Outcome, Sample, Score, Skipped


class GroupComparer(Protocol):
    """Whoever compares the responses to one prompt."""

    @property
    def quorum(self) -> float:
        """The share of a group, or of a response's comparisons, that must be there."""
        ...

    async def group(self, samples: Sequence[Sample], *, component: str) -> list[Outcome]:
        """What each of the siblings is worth, or why that is not known."""


class Comparer:
    """Compares responses to one prompt before one judge.

    Args:
        name: of the judge.
        bench: where it is asked.
        comparison: how responses are compared.
        listener: hears what came of each group.
    """

    def __init__(
        self, name: str, bench: CachedJudge, comparison: Comparison, *, listener: Listener
    ) -> None:
        self._name = name
        self._bench = bench
        self._comparison = comparison
        self._listener = listener

    @property
    def quorum(self) -> float:
        """The share of a group, or of a response's comparisons, that must be there."""
        return self._comparison.quorum

    async def group(self, samples: Sequence[Sample], *, component: str) -> list[Outcome]:
        """What each of the siblings is worth, from 0 to 1, or why that is not known.

        Each different response is shown once, in an order that only the set of the responses
        decides. Raises nothing of its own.
        """
        shared = shared_texts(samples, self._bench.rubric)
        if isinstance(shared, Abstain):
            return [shared] * len(samples)
        responses = by_content(sample.response for sample in samples)
        copies = Counter(sample.response for sample in samples)
        matches, settled, why = await self._compared(shared, responses, component)
        self._tell(matches, settled, component, samples)
        found = rank_responses(
            matches,
            [copies[response] for response in responses],
            by=self._by(len(responses)),
            quorum=self.quorum,
        )
        places = dict(zip(responses, found, strict=True))
        return [_outcome(places[sample.response], why) for sample in samples]

    def _by(self, responses: int) -> By:
        """How values are found: over several windows nobody has met everybody."""
        comparison = self._comparison
        windowed = comparison.kind == "rank" and responses > comparison.max_members
        return "bradley_terry" if windowed else comparison.by

    async def reference(self, sample: Sample, *, component: str) -> Outcome:
        """Whether the response is better (1), as good (0.5) or worse (0) than its reference."""
        key = self._comparison.reference_key
        reference = extra_text(sample, key)
        if reference is None:
            return Abstain(
                FailureKind.BAD_INPUT,
                f"the verdict compares with the extra column {key!r}, which this sample "
                "does not have",
            )
        shared = shared_texts([sample], self._bench.rubric)
        if isinstance(shared, Abstain):
            return shared
        if sample.response == reference:
            return Score(0.5, "identical to the reference", _detail(1, 0.0))
        responses = by_content([sample.response, reference])
        match, settled = await self._pair(shared, responses, (0, 1), component)
        self._tell([match], settled, component, [])
        if isinstance(match.result, Abstain):
            return match.result
        won = match.result if responses[0] == sample.response else 1.0 - match.result
        whys = [s.outcome.why for s in settled if isinstance(s.outcome, Score)]
        return Score(won, whys[0], _detail(1, float(not match.agreed)))

    async def _compared(
        self, shared: Mapping[str, str], responses: Sequence[str], component: str
    ) -> tuple[list[Match], list[JudgementResult], str]:
        """All matches of a group, what was settled for them, and the judge's reason if it is one.

        Nobody is asked about a single response.
        """
        comparison = self._comparison
        if len(responses) < 2:
            return [], [], "identical to all of its siblings"
        if comparison.kind == "pairs":
            pairs = pairings(len(responses), comparison.rounds)
            asked = []
            async with asyncio.TaskGroup() as tasks:
                for pair in pairs:
                    asked.append(tasks.create_task(self._pair(shared, responses, pair, component)))
                    await asyncio.sleep(0)  # a thousand requests made at once would hold the loop
            results = [task.result() for task in asked]
            return [match for match, _ in results], [s for _, both in results for s in both], ""
        shown = windows(len(responses), comparison.max_members)
        async with asyncio.TaskGroup() as tasks:
            ranked = [
                tasks.create_task(self._asked(shared, [responses[i] for i in window], component))
                for window in shown
            ]
        settled = [task.result() for task in ranked]
        orders = [s.outcome for s in settled if not isinstance(s.outcome, Skipped)]
        why = orders[0].why if len(orders) == 1 and isinstance(orders[0], Score) else ""
        return ranked_matches(shown, orders), settled, why

    async def _pair(
        self,
        shared: Mapping[str, str],
        responses: Sequence[str],
        pair: tuple[int, int],
        component: str,
    ) -> tuple[Match, list[JudgementResult]]:
        """The two at `pair`, shown in both orders: a judge may prefer whoever comes first."""
        first, second = (responses[index] for index in pair)
        async with asyncio.TaskGroup() as tasks:
            forth = tasks.create_task(self._asked(shared, [first, second], component))
            back = tasks.create_task(self._asked(shared, [second, first], component))
        both = [forth.result(), back.result()]
        for settled in both:
            if isinstance(settled.outcome, Abstain):
                return Match(*pair, settled.outcome), both
        won, lost = (s.outcome.value for s in both if isinstance(s.outcome, Score))
        agreed = won == 1.0 - lost
        return Match(*pair, won if agreed else 0.5, agreed), both

    async def _asked(
        self, shared: Mapping[str, str], responses: Sequence[str], component: str
    ) -> JudgementResult:
        shown = lineup(shared, responses, self._bench.config, self._bench.rubric)
        return await self._bench.settle(shown.request, shown.read, component=component)

    def _tell(
        self,
        matches: Sequence[Match],
        settled: Sequence[JudgementResult],
        component: str,
        samples: Sequence[Sample],
    ) -> None:
        reached = [match for match in matches if not isinstance(match.result, Abstain)]
        self._listener(
            ResponsesCompared(
                judge=self._name,
                component=component,
                group=(samples[0].group or "") if samples else "",
                members=len(samples) or 2,
                comparisons=len(reached),
                failed=len(matches) - len(reached),
                inconsistent=sum(not match.agreed for match in reached),
                models=tuple(sorted({s.model for s in settled if s.model})),
            )
        )


class AgainstReference:
    """A judge of single samples that compares each with its reference."""

    def __init__(self, comparer: Comparer) -> None:
        self._comparer = comparer

    async def judge(self, sample: Sample, *, component: str = "") -> Outcome:
        """The verdict on `sample`; see `Comparer.reference`."""
        return await self._comparer.reference(sample, component=component)


def _outcome(standing: Rank | Abstain, why: str) -> Outcome:
    if isinstance(standing, Abstain):
        return standing
    said = why or f"beats {standing.value:.0%} of its siblings, by {standing.met} comparisons"
    return Score(standing.value, said, _detail(standing.met, standing.inconsistent))


def _detail(comparisons: int, inconsistent: float) -> dict[str, dict[str, float]]:
    return {"measured": {"comparisons": float(comparisons), "inconsistent": inconsistent}}
