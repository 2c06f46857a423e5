"""Compares responses by a judge: pairs shown in both orders, or several in one ranking."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from zerowait.config import By, Comparison
from zerowait.engine.judging.cached_judge import CachedJudge
from zerowait.engine.judging.result import JudgementResult
from zerowait.events import Listener, ResponsesCompared
from zerowait.judge import (
    Match,
    Rank,
    SampleTexts,
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
    """Compares the responses to one prompt; `Comparer` by one judge, a panel by several."""

    @property
    def quorum(self) -> float:
        """The share of a group, or of a response's comparisons, that must be there."""
        ...

    async def compare(self, samples: Sequence[Sample], *, component: str) -> list[Outcome]:
        """The value of each sibling in [0, 1], or why it is not known."""


class Comparer:
    """Compares the responses to one prompt by one judge.

    Args:
        name: of the judge.
        judge: answers the comparisons.
        comparison: how responses are compared.
        listener: gets a `ResponsesCompared` event per group.
    """

    def __init__(
        self, name: str, judge: CachedJudge, comparison: Comparison, *, listener: Listener
    ) -> None:
        self._name = name
        self._judge = judge
        self._comparison = comparison
        self._listener = listener

    @property
    def quorum(self) -> float:
        """The share of a group, or of a response's comparisons, that must be there."""
        return self._comparison.quorum

    async def compare(self, samples: Sequence[Sample], *, component: str) -> list[Outcome]:
        """The value of each sibling in [0, 1], or why it is not known.

        Equal responses are shown once, in an order that only the set of the responses decides.
        Raises nothing of its own.
        """
        shared = shared_texts(samples, self._judge.rubric, self._judge.config)
        if isinstance(shared, Abstain):
            return [shared] * len(samples)
        responses = by_content(sample.response for sample in samples)
        copies = Counter(sample.response for sample in samples)
        matches, results, why = await self._matches(shared, responses, component)
        self._tell(matches, results, component, samples)
        # over several windows no response has met all others: shares of wins would be unfair
        windowed = self._comparison.kind == "rank" and len(responses) > self._comparison.max_members
        by: By = "bradley_terry" if windowed else self._comparison.by
        counts = [copies[response] for response in responses]
        ranks = rank_responses(matches, counts, by=by, quorum=self.quorum)
        rank_of = dict(zip(responses, ranks, strict=True))
        return [_outcome(rank_of[sample.response], why) for sample in samples]

    async def compare_with_reference(self, sample: Sample, *, component: str) -> Outcome:
        """Whether the response is better (1), as good (0.5) or worse (0) than its reference."""
        key = self._comparison.reference_key
        reference = extra_text(sample, key)
        if reference is None:
            return Abstain(
                FailureKind.BAD_INPUT,
                f"the verdict compares with the extra column {key!r}, which this sample "
                "does not have",
            )
        shared = shared_texts([sample], self._judge.rubric, self._judge.config)
        if isinstance(shared, Abstain):
            return shared
        if sample.response == reference:
            return Score(0.5, "identical to the reference", _detail(1, 0.0))
        responses = by_content([sample.response, reference])
        match, results = await self._match(shared, responses, (0, 1), component)
        self._tell([match], results, component, [])
        if isinstance(match.result, Abstain):
            return match.result
        won = match.result if responses[0] == sample.response else 1.0 - match.result
        whys = [r.outcome.why for r in results if isinstance(r.outcome, Score)]
        return Score(won, whys[0], _detail(1, float(not match.agreed)))

    async def _matches(
        self, shared: SampleTexts, responses: Sequence[str], component: str
    ) -> tuple[list[Match], list[JudgementResult], str]:
        """All matches of a group, the judge's results, and its reason where it gave a single one.

        A single response is compared with nothing, and the judge is not asked.
        """
        comparison = self._comparison
        if len(responses) < 2:
            return [], [], "identical to all of its siblings"
        if comparison.kind == "pairs":
            pairs = pairings(len(responses), comparison.rounds)
            running = []
            async with asyncio.TaskGroup() as tasks:
                for pair in pairs:
                    match = self._match(shared, responses, pair, component)
                    running.append(tasks.create_task(match))
                    await asyncio.sleep(0)  # a thousand requests made at once would hold the loop
            done = [task.result() for task in running]
            return [match for match, _ in done], [each for _, both in done for each in both], ""
        shown = windows(len(responses), comparison.max_members)
        async with asyncio.TaskGroup() as tasks:
            ranked = [
                tasks.create_task(self._ask(shared, [responses[i] for i in window], component))
                for window in shown
            ]
        results = [task.result() for task in ranked]
        orders = [r.outcome for r in results if not isinstance(r.outcome, Skipped)]
        why = orders[0].why if len(orders) == 1 and isinstance(orders[0], Score) else ""
        return ranked_matches(shown, orders), results, why

    async def _match(
        self,
        shared: SampleTexts,
        responses: Sequence[str],
        pair: tuple[int, int],
        component: str,
    ) -> tuple[Match, list[JudgementResult]]:
        """The match of a pair, shown in both orders: judges may prefer what is shown first."""
        first, second = (responses[index] for index in pair)
        async with asyncio.TaskGroup() as tasks:
            forth = tasks.create_task(self._ask(shared, [first, second], component))
            back = tasks.create_task(self._ask(shared, [second, first], component))
        both = [forth.result(), back.result()]
        for result in both:
            if isinstance(result.outcome, Abstain):
                return Match(*pair, result.outcome), both
        won, lost = (r.outcome.value for r in both if isinstance(r.outcome, Score))
        agreed = won == 1.0 - lost
        return Match(*pair, won if agreed else 0.5, agreed), both

    async def _ask(
        self, shared: SampleTexts, responses: Sequence[str], component: str
    ) -> JudgementResult:
        shown = lineup(shared, responses, self._judge.config, self._judge.rubric)
        return await self._judge.settle(shown.request, shown.read, component=component)

    def _tell(
        self,
        matches: Sequence[Match],
        results: Sequence[JudgementResult],
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
                models=tuple(sorted({r.model for r in results if r.model})),
            )
        )


class ReferenceRunner:
    """A judge runner that compares each sample with its reference response."""

    def __init__(self, comparer: Comparer) -> None:
        self._comparer = comparer

    async def judge(self, sample: Sample, *, component: str = "") -> Outcome:
        """The verdict on `sample`; see `Comparer.compare_with_reference`."""
        return await self._comparer.compare_with_reference(sample, component=component)


def _outcome(rank: Rank | Abstain, why: str) -> Outcome:
    if isinstance(rank, Abstain):
        return rank
    said = why or f"beats {rank.value:.0%} of its siblings, by {rank.met} comparisons"
    return Score(rank.value, said, _detail(rank.met, rank.inconsistent))


def _detail(comparisons: int, inconsistent: float) -> dict[str, dict[str, float]]:
    return {"measured": {"comparisons": float(comparisons), "inconsistent": inconsistent}}
