"""Verdicts on several criteria in one answer, and their weighted mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec

from zerowait.config.schema import VerdictRule
from zerowait.judge.parsing.answer import folded, visible_answer
from zerowait.judge.parsing.claims import VerdictClaim, labelled_claims
from zerowait.judge.parsing.loose_json import json_claims
from zerowait.judge.parsing.readers import bounds, criterion_reader
from zerowait.judge.parsing.verdict import (
    claim_outcome,
    deciding_claim,
    expected_form,
    is_retracted,
    one_line,
    unparseable,
)
from zerowait.judge.pooling import dominating
from zerowait.judge.rubric import Criterion
from zerowait.types import Abstain, Outcome, Score

_MOST_CLAIMS = 100
_SHOWN_CHARS = 80
_AFTER_LAST_WORD = " \t\n`*_~"


class CriteriaForm(msgspec.Struct, frozen=True):
    """One line for each criterion, each a verdict under `rule`; none may be missing.

    Args:
        rule: the form of each verdict.
        criteria: in the order in which they are asked for.
    """

    rule: VerdictRule
    criteria: tuple[Criterion, ...]

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest score: a mean stays in the verdicts' range."""
        return bounds(self.rule)

    @property
    def response_format(self) -> None:
        """None: the prompt says it."""
        return None

    @property
    def enforced(self) -> str:
        """Empty: the prompt says it."""
        return ""

    def asked(self, *, reason_first: bool) -> str:
        """The instruction in which form to answer.

        >>> criteria = (Criterion("logic", 0.6), Criterion("style", 0.4))
        >>> form = CriteriaForm(VerdictRule(integer=(1, 10)), criteria)
        >>> print(form.asked(reason_first=False))
        Reply with exactly one line for each criterion, in this order, and nothing else:
        logic: N
        style: N
        where each N is a whole number from 1 to 10; the highest number is the best.
        """
        opening = (
            "First give your reasons in a few sentences. Then end your reply with exactly one line "
            "for each criterion, in this order, and write nothing after them:"
            if reason_first
            else "Reply with exactly one line for each criterion, in this order, and nothing else:"
        )
        sign = "WORD" if self.rule.choice else "N"
        lines = "\n".join(f"{criterion.name}: {sign}" for criterion in self.criteria)
        best = "" if self.rule.choice else "; the highest number is the best"
        return f"{opening}\n{lines}\nwhere each {sign} is {expected_form(self.rule)}{best}."

    def read(self, text: str) -> Score | Abstain:
        """The weighted mean of the verdicts in an answer.

        Where the last lines are one verdict for each criterion, and the line before them is no
        further one, only these lines count. Otherwise each criterion has to be named with one
        verdict in the whole answer.
        """
        found = self.outcomes(text)
        if isinstance(found, Abstain):
            return found
        outcomes, why = found
        score = weighted(self.criteria, outcomes)
        return score if isinstance(score, Abstain) else msgspec.structs.replace(score, why=why)

    def outcomes(self, text: str) -> tuple[dict[str, Outcome], str] | Abstain:
        """What an answer says of each criterion, by name, and its reasons.

        An Abstain where the answer says nothing at all, or takes a verdict back.
        """
        answer = visible_answer(text)
        if answer is None:
            return unparseable("the reply ended while the judge was thinking", self.rule)
        answer = f"\n{answer.strip()}"
        if answer == "\n":
            return unparseable("the reply is empty", self.rule)
        start = _tail_start(answer, len(self.criteria) + 1)
        if "{" in answer[start:] and "{" in answer[:start]:  # of several objects, which one counts?
            start = 0
        found = self._found(answer[start:])
        if any(isinstance(claim, str) or claim.verdict is None for claim in found.values()):
            start, found = 0, self._found(answer)
        outcomes = {name: self._outcome(name, claim, answer) for name, claim in found.items()}
        claims = [claim for claim in found.values() if isinstance(claim, VerdictClaim)]
        if not claims:
            return outcomes, ""
        last = criterion_reader(self.rule, self.criteria[-1].name)
        if is_retracted(answer, start + max(claim.end for claim in claims), last):
            return unparseable("the reply takes a verdict back", self.rule, answer[-_SHOWN_CHARS:])
        return outcomes, _reasons(answer, start, claims)

    def _found(self, answer: str) -> dict[str, VerdictClaim | str]:
        """The claim of `answer` for each criterion, or what is wrong with its claims."""
        return {c.name: self._claim_for(answer, c.name) for c in self.criteria}

    def _claim_for(self, answer: str, name: str) -> VerdictClaim | str:
        reader = criterion_reader(self.rule, name)
        claims, spans = json_claims(answer, reader)
        claims.extend(islice(labelled_claims(folded(answer), reader, spans), _MOST_CLAIMS))
        # "final" is for the one verdict that ends a reply; of several only the last could be it
        return deciding_claim([claim._replace(final=False) for claim in claims])

    def _outcome(self, name: str, claim: VerdictClaim | str, answer: str) -> Outcome:
        if isinstance(claim, str):
            return unparseable(f"{name}: {claim}", self.rule, answer[-_SHOWN_CHARS:])
        outcome = claim_outcome(claim, self.rule, answer)
        if isinstance(outcome, Score):
            return Score(outcome.value, detail=outcome.detail)  # the reasons are for all of them
        return Abstain(outcome.kind, f"{name}: {outcome.detail}")


def weighted(criteria: Sequence[Criterion], outcomes: Mapping[str, Outcome]) -> Score | Abstain:
    """The weighted mean of the criteria's scores, or an abstention when one of them abstained.

    Weights are never re-normalised over the criteria that were judged. ``detail["criteria"]`` has
    the verdict of each, ``detail["measured"]`` its score.

    >>> criteria = (Criterion("logic", 3.0), Criterion("style", 1.0))
    >>> weighted(criteria, {"logic": Score(8.0), "style": Score(4.0)}).value
    7.0
    """
    scores = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Score)}
    missing = {name: o for name, o in outcomes.items() if isinstance(o, Abstain)}
    if len(scores) < len(criteria):
        kind = dominating(missing.values())
        first = next(name for name, outcome in missing.items() if outcome.kind is kind)
        return Abstain(
            kind,
            f"{len(scores)} of {len(criteria)} criteria were judged; "
            f"{first}: {missing[first].detail.removeprefix(f'{first}: ')}",
        )
    values = [scores[criterion.name].value for criterion in criteria]
    total = math.fsum(criterion.weight for criterion in criteria)
    mean = math.fsum(c.weight / total * value for c, value in zip(criteria, values, strict=True))
    value = min(max(mean, min(values)), max(values))
    verdicts = {name: score.detail.get("verdict", score.value) for name, score in scores.items()}
    why = "; ".join(f"{name}: {score.why}" for name, score in scores.items() if score.why)
    beside = next(iter(scores.values())).detail.get("measured", {})  # the same for all of them
    return Score(
        value,
        one_line(why),
        {
            "verdict": value,
            "criteria": verdicts,
            "measured": beside | {name: score.value for name, score in scores.items()},
        },
    )


def _tail_start(answer: str, lines: int) -> int:
    """Where the last so many lines that are not blank begin, at the newline before them."""
    end = len(answer.rstrip(_AFTER_LAST_WORD))
    while lines:
        start = answer.rfind("\n", 0, end)
        if start <= 0:
            return 0
        lines -= bool(answer[start:end].strip())
        end = start
    return end


def _reasons(answer: str, offset: int, claims: Sequence[VerdictClaim]) -> str:
    """The beginning of the text before the verdicts; else beside, else after them."""
    before = answer[: offset + min(claim.start for claim in claims)]
    beside = next((claim.reason for claim in claims if claim.reason), "")
    after = answer[offset + max(claim.end for claim in claims) :]
    texts = (text for text in (before, beside, after) if any(map(str.isalpha, text)))
    return one_line(next(texts, ""))
