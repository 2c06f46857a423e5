"""Pools several verdicts into one: the votes of a judge, or the members of a panel."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from zerowait.config.judgement import Panel, Pooling, Votes
from zerowait.types import POLICY_CAUSED, Abstain, FailureKind, Outcome, Score

_KINDS = tuple(FailureKind)


def measure(by: Pooling) -> str:
    """What `pooled` measures beside the verdict: ``agreement`` of a majority, else ``spread``."""
    return "agreement" if by == "majority" else "spread"


def pooled(outcomes: Sequence[Outcome], *, by: Pooling, quorum: int, what: str) -> Score | Abstain:
    """One score made of several, or an abstention when fewer than `quorum` of them succeeded.

    - ``mean`` and ``median`` of the scores' values; ``measured["spread"]`` is their standard
      deviation (of the population).
    - ``majority``: the value that comes most often; ``measured["agreement"]`` is its share of the
      successful verdicts. Two values that come equally often are a tie, which is ``unparseable``,
      as different verdicts within one reply are.

    Below the quorum the kind is that of most failures. The order of `outcomes` changes nothing but
    which of several equal reasons is shown.

    Args:
        outcomes: judgements of the same sample, in the same range.
        by: the pooling method.
        quorum: the fewest scores among them.
        what: the name of the outcomes in messages, such as "votes".

    >>> votes = [Score(7.0), Score(8.0), Abstain("timeout", "no answer in 60 s")]
    >>> pooled(votes, by="mean", quorum=2, what="votes").value
    7.5
    >>> pooled(votes, by="mean", quorum=3, what="votes").detail
    '2 of 3 votes gave a verdict, 3 are needed; timeout: no answer in 60 s'
    """
    scores = [outcome for outcome in outcomes if isinstance(outcome, Score)]
    failures = [outcome for outcome in outcomes if isinstance(outcome, Abstain)]
    if len(scores) < quorum:
        kind = dominating(failures)
        example = next(failure.detail for failure in failures if failure.kind is kind)
        return Abstain(
            kind,
            f"{len(scores)} of {len(outcomes)} {what} gave a verdict, {quorum} are needed; "
            f"{kind}: {example}",
        )
    if by == "majority":
        return _majority(scores, what)
    values = [score.value for score in scores]
    mean = min(max(math.fsum(values) / len(values), min(values)), max(values))
    value = median(values) if by == "median" else mean
    spread = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / len(values))
    nearest = min(scores, key=lambda score: abs(score.value - value))
    return Score(value, nearest.why, {"verdict": value, "measured": {"spread": spread}})


def votes_outcome(outcomes: Sequence[Outcome], votes: Votes) -> Score | Abstain:
    """One outcome from the votes of one judge.

    ``detail["votes"]`` has each verdict, None where a vote failed; numbers that the votes measured
    are averaged.
    """
    score = pooled(outcomes, by=votes.by, quorum=votes.needed, what="votes")
    if isinstance(score, Abstain):
        return score
    found: dict[str, list[float]] = {}
    for outcome in outcomes:
        if isinstance(outcome, Score):
            for name, number in outcome.detail.get("measured", {}).items():
                found.setdefault(name, []).append(number)
    means = {name: math.fsum(numbers) / len(numbers) for name, numbers in found.items()}
    measured = means | score.detail["measured"]
    said = [_verdict_or_none(outcome) for outcome in outcomes]
    return Score(score.value, score.why, score.detail | {"votes": said, "measured": measured})


def panel_outcome(outcomes: Mapping[str, Outcome], panel: Panel) -> Score | Abstain:
    """One outcome from those of a panel's members, by name.

    ``detail["members"]`` has each member's verdict, None where it abstained, and ``measured`` each
    member's value.
    """
    score = pooled(list(outcomes.values()), by=panel.by, quorum=panel.needed, what="members")
    if isinstance(score, Abstain):
        return score
    values = {name: o.value for name, o in outcomes.items() if isinstance(o, Score)}
    said = {name: _verdict_or_none(outcome) for name, outcome in outcomes.items()}
    measured = values | score.detail["measured"]
    return Score(score.value, score.why, score.detail | {"members": said, "measured": measured})


def dominating(failures: Iterable[Abstain]) -> FailureKind:
    """The most frequent kind of failure.

    Of equally frequent kinds, one that the policy's text can cause comes first: an outage must not
    hide it.
    """
    counts = Counter(failure.kind for failure in failures)
    return max(counts, key=lambda kind: (counts[kind], kind in POLICY_CAUSED, -_KINDS.index(kind)))


def _majority(scores: Sequence[Score], what: str) -> Score | Abstain:
    by_value = {score.value: score for score in reversed(scores)}
    ranked = Counter(score.value for score in scores).most_common()
    value, count = ranked[0]
    if len(ranked) > 1 and ranked[1][1] == count:
        tied = sorted(value for value, times in ranked if times == count)
        named = ", ".join(str(_verdict(by_value[value])) for value in tied)
        return Abstain(FailureKind.UNPARSEABLE, f"the {what} are tied: {count} each for {named}")
    winner = by_value[value]
    agreement = count / len(scores)
    detail = {"verdict": _verdict(winner), "measured": {"agreement": agreement}}
    return Score(value, winner.why, detail)


def _verdict_or_none(outcome: Outcome) -> object:
    return _verdict(outcome) if isinstance(outcome, Score) else None


def _verdict(score: Score) -> object:
    return score.detail.get("verdict", score.value)
