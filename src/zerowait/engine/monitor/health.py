"""Health checks: whether the rewards of one training step look sound.

Pure functions of a step's rows and of the mean rewards of earlier steps. Each check is silent where
it has too few rows to tell. The thresholds are chosen to be silent on sound data: each has a false
positive in fewer than 1 of 1,000 steps of independent rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median, pvariance
from typing import Final, NamedTuple

from zerowait.engine.monitor.bimodality import two_clusters
from zerowait.rank_statistics import correlation_z, rank_correlation, rank_sum_z
from zerowait.scorers import is_not_finite
from zerowait.types import Abstain, FailureKind, Reward, Sample, Score

ALARMS: Final[dict[str, str]] = {
    "all_equal": "every reward of the step is the same, so that no response is better than another",
    "saturated": "nearly every value stands at the same end, so that little can be learned",
    "not_finite": "a function returned NaN or infinity",
    "bimodal_length": "the responses are of two lengths, such as refusals beside full answers",
    "judge_disagrees": "a judge prefers what the rules score low",
    "mean_jump": "the mean reward changed far more than it does from step to step",
    "judge_fails": "a judge reaches no verdict on many responses: it is down, out of quota, or its "
    "replies cannot be read",
    "abstains_by_length": "long, or short, responses escape judgement more often than others",
    "abstains_by_score": "responses that the rules score high, or low, escape judgement more often",
}
"""What each alarm means, by kind."""

_FEWEST_ROWS = 32
_SATURATED_SHARE = 0.95
_DISAGREEING_RHO = -0.3
_SURE_Z = 4.0
_FEWEST_ABSTAINED = 8
_FEWEST_STEPS = 9
_JUMP = 6.0
_FEWEST_FAILED = 8
_USUAL_FAILURES = 0.1
"""The share of a judge's rows that may fail without an alarm: some rows always do."""


class HealthRow(NamedTuple):
    """One response, as far as the checks look at it.

    Args:
        value: the reward; None when there is none.
        abstained: whether a component abstained, whatever the failure policy made of that.
        length: tokens that the model wrote; None where it is not known.
        rule_score: the weighted sum of the rules; None when one abstained, or there is no rule.
        judged: the value of each judge that reached one, by component.
        not_finite: the components whose function returned NaN or infinity.
        failed: why each judge that was asked reached no verdict, by component: the failure's kind.
    """

    value: float | None
    abstained: bool = False
    length: int | None = None
    rule_score: float | None = None
    judged: Mapping[str, float] = {}
    not_finite: tuple[str, ...] = ()
    failed: Mapping[str, str] = {}


class StepRow(NamedTuple):
    """A row, and the number of its training step."""

    step: int
    row: HealthRow


class StepMean(NamedTuple):
    """The mean reward of a step, and its standard error."""

    mean: float
    error: float


class HealthFinding(NamedTuple):
    """An alarm of one step; `component` is empty where it is about the whole reward."""

    kind: str
    component: str
    why: str


def row_of(
    sample: Sample, reward: Reward, rules: Mapping[str, float], judges: Collection[str]
) -> HealthRow:
    """The row of a scored sample.

    Args:
        sample: what was scored.
        reward: its reward.
        rules: weight of each rule, by component.
        judges: components that are judges.
    """
    known = {name: reward.components.get(name) for name in rules}
    scored = not any(isinstance(outcome, Abstain) for outcome in known.values())
    terms = [rules[name] * each.value for name, each in known.items() if isinstance(each, Score)]
    components = reward.components.items()
    return HealthRow(
        value=reward.value,
        abstained=any(isinstance(outcome, Abstain) for _, outcome in components),
        length=sample.response_tokens,
        rule_score=math.fsum(terms) if scored and terms else None,
        judged={n: each.value for n, each in components if n in judges and isinstance(each, Score)},
        not_finite=tuple(name for name, outcome in components if is_not_finite(outcome)),
        failed={
            n: each.kind
            for n, each in components
            if n in judges and isinstance(each, Abstain) and each.kind != FailureKind.CANCELLED
        },
    )


def step_mean(rows: Sequence[HealthRow]) -> StepMean | None:
    """The mean reward of a step's rows; None with fewer than 32 rewards."""
    values = [row.value for row in rows if row.value is not None]
    if len(values) < _FEWEST_ROWS:
        return None
    return StepMean(fmean(values), math.sqrt(pvariance(values) / len(values)))


def findings(rows: Sequence[HealthRow], past: Sequence[StepMean] = ()) -> list[HealthFinding]:
    """The alarms of one step; empty where its rewards look sound.

    - ``all_equal`` and ``saturated`` need 32 values; the latter also looks at each judge, and fires
      when 95 % of the values are the largest or the smallest of the step.
    - ``judge_disagrees``: a Spearman correlation with the rule score of -0.3 or less that is 4
      standard errors from 0.
    - ``judge_fails``: a judge has no verdict on more than a tenth of its rows, by 4 standard
      errors, and on at least 8.
    - ``abstains_by_…``: a rank sum that is 4 standard errors from 0, with at least 8 rows on each
      side.
    - ``mean_jump``: a change of 6 times the median change of at least 8 steps, and of 6 standard
      errors.
    - ``bimodal_length``: see `two_clusters`.

    Args:
        rows: of the step.
        past: mean rewards of the steps before, in order.

    >>> [found.kind for found in findings([HealthRow(1.0)] * 32)]
    ['all_equal']
    """
    return [
        *_values(rows),
        *_not_finite(rows),
        *_lengths(rows),
        *_disagreement(rows),
        *_jump(rows, past),
        *_failing_judges(rows),
        *_biased_abstention(rows),
    ]


def failing_judge(component: str, rows: Sequence[HealthRow], count: int) -> HealthFinding | None:
    """The alarm ``judge_fails`` of a judge; None where no more than a tenth fails.

    Args:
        component: the judge's.
        rows: of the step, as far as they are known.
        count: how many rows the step will have. Those that are not known yet count as judged:
            failures may come first, because a refused connection is faster than a verdict.
    """
    kinds = Counter(row.failed[component] for row in rows if component in row.failed)
    failed = kinds.total()
    known = failed + sum(component in row.judged for row in rows)
    asked = known + max(count - len(rows), 0)
    allowed = _USUAL_FAILURES * asked
    if failed < max(_FEWEST_FAILED, allowed + _SURE_Z * math.sqrt(allowed * (1 - _USUAL_FAILURES))):
        return None
    words = ", ".join(f"{kind} {n}" for kind, n in kinds.most_common())
    return HealthFinding("judge_fails", component, f"{failed} of {known} rows: {words}")


def _values(rows: Sequence[HealthRow]) -> Iterator[HealthFinding]:
    values = [row.value for row in rows if row.value is not None]
    if len(values) >= _FEWEST_ROWS and min(values) == max(values):
        yield HealthFinding("all_equal", "", f"all {len(values)} rewards are {values[0]:g}")
    else:
        yield from _saturation("", values)
    for name in sorted({name for row in rows for name in row.judged}):
        yield from _saturation(name, [row.judged[name] for row in rows if name in row.judged])


def _saturation(component: str, values: Sequence[float]) -> Iterator[HealthFinding]:
    if len(values) < _FEWEST_ROWS:
        return
    for end in {max(values), min(values)}:
        share = sum(value == end for value in values) / len(values)
        if share >= _SATURATED_SHARE:
            yield HealthFinding("saturated", component, f"{share:.0%} of {len(values)} are {end:g}")


def _not_finite(rows: Sequence[HealthRow]) -> Iterator[HealthFinding]:
    for name in sorted({name for row in rows for name in row.not_finite}):
        times = sum(name in row.not_finite for row in rows)
        yield HealthFinding("not_finite", name, f"for {times} of {len(rows)} responses")


def _lengths(rows: Sequence[HealthRow]) -> Iterator[HealthFinding]:
    clusters = two_clusters([row.length for row in rows if row.length is not None])
    if clusters is not None:
        short, long, share = clusters
        yield HealthFinding(
            "bimodal_length", "", f"{share:.0%} around {short:.0f} tokens, others around {long:.0f}"
        )


def _disagreement(rows: Sequence[HealthRow]) -> Iterator[HealthFinding]:
    for name in sorted({name for row in rows for name in row.judged}):
        pairs = [
            (row.judged[name], row.rule_score)
            for row in rows
            if name in row.judged and row.rule_score is not None
        ]
        if len(pairs) < _FEWEST_ROWS:
            continue
        rho = rank_correlation([judged for judged, _ in pairs], [rule for _, rule in pairs])
        if rho is None or rho > _DISAGREEING_RHO or correlation_z(rho, len(pairs)) > -_SURE_Z:
            continue
        yield HealthFinding(
            "judge_disagrees", name, f"Spearman's rho {rho:.2f} over {len(pairs)} rows"
        )


def _jump(rows: Sequence[HealthRow], past: Sequence[StepMean]) -> Iterator[HealthFinding]:
    now = step_mean(rows)
    if now is None or len(past) < _FEWEST_STEPS:
        return
    changes = [abs(b.mean - a.mean) for a, b in pairwise(past)]
    change = now.mean - past[-1].mean
    rounding = 1e-9 * max(abs(now.mean), abs(past[-1].mean))
    noise = max(1.4826 * median(changes), math.hypot(now.error, past[-1].error), rounding)
    if abs(change) > _JUMP * noise:
        yield HealthFinding(
            "mean_jump", "", f"from {past[-1].mean:.3f} to {now.mean:.3f} in one step"
        )


def _failing_judges(rows: Sequence[HealthRow]) -> Iterator[HealthFinding]:
    for name in sorted({name for row in rows for name in row.failed}):
        found = failing_judge(name, rows, len(rows))
        if found is not None:
            yield found


def _biased_abstention(rows: Sequence[HealthRow]) -> Iterator[HealthFinding]:
    for kind, words, field in (
        ("abstains_by_length", ("longer", "shorter"), "length"),
        ("abstains_by_score", ("scored higher by the rules", "scored lower by the rules"), "rule"),
    ):
        known = [
            (each, row.abstained)
            for row in rows
            if (each := row.length if field == "length" else row.rule_score) is not None
        ]
        lost = [float(each) for each, abstained in known if abstained]
        kept = [float(each) for each, abstained in known if not abstained]
        if min(len(lost), len(kept)) < _FEWEST_ABSTAINED:
            continue
        z = rank_sum_z(lost, kept)
        if abs(z) > _SURE_Z:
            which = words[0] if z > 0 else words[1]
            why = f"the {len(lost)} that were not judged are {which} than the others (z = {z:.1f})"
            yield HealthFinding(kind, "", why)
