"""Whether a step's rewards look sound: pure checks on its rows, and on the means of steps before.

Each check says nothing where it has too few rows to know. The thresholds are meant to be silent on
sound data: every one below has a false positive in fewer than 1 of 1,000 steps of independent rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from statistics import fmean, median, pvariance
from typing import Final, NamedTuple

from zerowait.scorers import is_not_finite
from zerowait.types import Abstain, Reward, Sample, Score


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value from 1 on; equal values share the mean of their ranks.

    >>> ranks([10.0, 30.0, 10.0])
    [1.5, 3.0, 1.5]
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for position in order[start : end + 1]:
            found[position] = (start + end) / 2 + 1
        start = end + 1
    return found


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's rho, in [-1, 1]; None where either side has one value only.

    Reference:
        Spearman 1904, The proof and measurement of association between two things.

    >>> rank_correlation([1.0, 2.0, 3.0], [9.0, 4.0, 1.0])
    -1.0
    """
    middle = (len(one) + 1) / 2
    x, y = [rank - middle for rank in ranks(one)], [rank - middle for rank in ranks(other)]
    norm = math.sqrt(math.fsum(a * a for a in x) * math.fsum(b * b for b in y))
    if norm == 0:
        return None
    return max(-1.0, min(1.0, math.fsum(a * b for a, b in zip(x, y, strict=True)) / norm))


def correlation_z(rho: float, count: int) -> float:
    """How many standard errors `rho` of `count` pairs is away from 0.

    Reference:
        Fieller, Hartley and Pearson 1957, Tests for rank correlation coefficients (the 1.06).

    >>> round(correlation_z(0.5, 50), 2)
    3.66
    """
    return math.atanh(max(-0.999999, min(0.999999, rho))) * math.sqrt((count - 3) / 1.06)


def rank_sum_z(some: Sequence[float], others: Sequence[float]) -> float:
    """How many standard errors the values of `some` rank above those of `others`; ties allowed.

    0 where all values are equal, or one side is empty.

    Reference:
        Mann and Whitney 1947, On a test of whether one of two random variables is stochastically
        larger than the other; with the usual correction for ties.

    >>> round(rank_sum_z([4.0, 5.0, 6.0], [1.0, 2.0, 3.0]), 2)
    1.96
    """
    together = [*some, *others]
    m, n, total = len(some), len(others), len(together)
    if not m or not n:
        return 0.0
    tied = sum(times**3 - times for times in Counter(together).values())
    variance = m * n / 12 * (total + 1 - tied / (total * (total - 1)))
    if variance <= 0:
        return 0.0
    excess = math.fsum(ranks(together)[:m]) - m * (total + 1) / 2
    return excess / math.sqrt(variance)


_FEWEST = 64
_MOST = 2048  # more are thinned out evenly: the dip looks at each of them several times
_SMALLEST_SHARE = 0.1
_APART = 4.0
_FEW_DISTINCT = 8  # fewer different lengths than a row in so many: each of them is a peak
_GAPS = 3.0
_DIP = 0.73
"""Times 1 / sqrt(n): fewer than 1 of 1,000 samples of a uniform distribution have such a dip."""


class Clusters(NamedTuple):
    """The median of the short and of the long ones, and the share of the short ones."""

    short: float
    long: float
    share: float


def two_clusters(lengths: Sequence[int]) -> Clusters | None:
    """The two clusters that `lengths` fall into; None where they are of one kind.

    On the logarithms of at least 64 lengths, these things have to hold. The split that leaves least
    variance inside of its two parts leaves at least a tenth on each side, and parts that are apart
    by Ashman's D > 4 (a normal distribution, cut in two, has 2.6, a uniform one 3.5). Hartigan's
    dip is greater than 0.73 / sqrt(n): of all distributions with one peak the uniform one has the
    largest dips, and of its samples fewer than 1 in 1,000 have one as large. And where there are
    only a few different lengths, the gap between the parts is three times any gap inside of them.

    Equal lengths are spread over the width of one token, since a distribution of whole numbers has
    a peak at each of them.

    References:
        Otsu 1979, A threshold selection method from gray-level histograms (the split).
        Ashman, Bird and Zepf 1994, Detecting bimodality in astronomical datasets (D).
        Hartigan and Hartigan 1985, The dip test of unimodality.

    >>> two_clusters([100, 110, 120, 130] * 16 + [1000, 1100, 1200, 1300] * 16)
    Clusters(short=115.0, long=1150.0, share=0.5)
    >>> two_clusters(range(100, 400)) is None
    True
    """
    if len(lengths) < _FEWEST:
        return None
    ordered = sorted(max(length, 0) for length in lengths)
    logs = [math.log1p(length) for length in _spread(ordered)]
    cut = _best_cut(logs)
    below, above = logs[:cut], logs[cut:]
    share = cut / len(logs)
    if not _SMALLEST_SHARE <= share <= 1 - _SMALLEST_SHARE or _distance(below, above) <= _APART:
        return None
    if len(set(ordered)) * _FEW_DISTINCT <= len(ordered) and not _well_apart(below, above):
        return None
    sample = logs[:: -(-len(logs) // _MOST)]
    if dip(sample) * math.sqrt(len(sample)) <= _DIP:
        return None
    return Clusters(float(median(ordered[:cut])), float(median(ordered[cut:])), share)


def dip(ordered: Sequence[float]) -> float:
    """Hartigan's dip of values in ascending order, no two of them equal.

    That is the greatest distance between their empirical distribution and the nearest one that has
    a single peak.

    Reference:
        Hartigan 1985, Computation of the dip statistic to test for unimodality (AS 217).

    >>> round(dip([1, 2, 3, 4]), 3), round(dip([1, 1.01, 1.02, 9, 9.01, 9.02]), 3)
    (0.125, 0.249)
    """
    count = len(ordered)
    low, high, found = 0, count - 1, 1.0
    while low < high:
        convex = _hull(ordered, range(low, high + 1), sign=1)
        concave = _hull(ordered, range(low, high + 1), sign=-1)
        gap, left, right = _widest_gap(ordered, convex, concave)
        if gap <= found:
            break
        found = max(
            found,
            _most_above(ordered, [i for i in convex if i <= left]),
            _most_below(ordered, [i for i in concave if i >= right]),
        )
        if (left, right) == (low, high):
            break
        low, high = left, right
    return found / (2 * count)


def _hull(ordered: Sequence[float], indices: range, *, sign: int) -> list[int]:
    """Where the greatest convex minorant of the ranks touches them.

    For a `sign` of -1, where the least concave majorant does.
    """
    touched: list[int] = []
    for index in indices:
        while len(touched) > 1 and sign * _turn(ordered, touched[-2], touched[-1], index) <= 0:
            touched.pop()
        touched.append(index)
    return touched


def _turn(ordered: Sequence[float], a: int, b: int, c: int) -> float:
    """Above 0 where the ranks rise faster from `b` to `c` than from `a` to `b`."""
    return (c - b) * (ordered[b] - ordered[a]) - (b - a) * (ordered[c] - ordered[b])


def _widest_gap(
    ordered: Sequence[float], convex: Sequence[int], concave: Sequence[int]
) -> tuple[float, int, int]:
    """The greatest distance between both hulls at a place where one touches, and where it lies.

    The second and third number are the touching places of the convex and the concave hull around
    it.
    """
    best = (-1.0, convex[0], concave[-1])
    segment = 1
    for touch in convex:
        while concave[segment] < touch:
            segment += 1
        begin, end = concave[segment - 1], concave[segment]
        gap = _between(ordered, begin, end, touch) - touch + 1
        if gap > best[0]:
            best = (gap, touch, begin if begin == touch else end)
    segment = 1
    for touch in concave:
        while convex[segment] < touch:
            segment += 1
        begin, end = convex[segment - 1], convex[segment]
        gap = touch + 1 - _between(ordered, begin, end, touch)
        if gap > best[0]:
            best = (gap, end if end == touch else begin, touch)
    return best


def _between(ordered: Sequence[float], begin: int, end: int, at: int) -> float:
    """The rank at the place `at` on the straight line from `begin` to `end`."""
    share = (ordered[at] - ordered[begin]) / (ordered[end] - ordered[begin])
    return begin + share * (end - begin)


def _most_above(ordered: Sequence[float], convex: Sequence[int]) -> float:
    """The most by which the distribution stands above its convex minorant."""
    return max(
        (
            at + 1 - _between(ordered, begin, end, at)
            for begin, end in pairwise(convex)
            for at in range(begin, end + 1)
        ),
        default=0.0,
    )


def _most_below(ordered: Sequence[float], concave: Sequence[int]) -> float:
    """The most by which the distribution stands below its concave majorant."""
    return max(
        (
            _between(ordered, begin, end, at) + 1 - at
            for begin, end in pairwise(concave)
            for at in range(begin, end + 1)
        ),
        default=0.0,
    )


def _spread(ordered: Sequence[int]) -> list[float]:
    """The lengths, equal ones evenly over the width of one token."""
    spread: list[float] = []
    for length, equal in groupby(ordered):
        times = len(list(equal))
        spread.extend(max(length, 0.5) - 0.5 + (each + 0.5) / times for each in range(times))
    return spread


def _well_apart(below: Sequence[float], above: Sequence[float]) -> bool:
    """Whether the gap between the parts is much wider than those inside of them."""
    inside = max(b - a for part in (below, above) for a, b in pairwise([part[0], *part]))
    return above[0] - below[-1] > _GAPS * inside


def _best_cut(ordered: Sequence[float]) -> int:
    """How many values stand below the cut that explains most of the variance."""
    total, below, best, cut = math.fsum(ordered), 0.0, -1.0, 1
    for count in range(1, len(ordered)):
        below += ordered[count - 1]
        other = len(ordered) - count
        between = count * other * (below / count - (total - below) / other) ** 2
        if between > best and ordered[count] > ordered[count - 1]:
            best, cut = between, count
    return cut


def _distance(below: Sequence[float], above: Sequence[float]) -> float:
    """Ashman's D; infinite for two parts of one value each."""
    spread = math.sqrt(pvariance(below) + pvariance(above))
    apart = math.sqrt(2) * abs(fmean(above) - fmean(below))
    return apart / spread if spread else math.inf


ALARMS: Final[dict[str, str]] = {
    "all_equal": "every reward of the step is the same, so that no response is better than another",
    "saturated": "nearly every value stands at the same end, so that little can be learned",
    "not_finite": "a function returned NaN or infinity",
    "bimodal_length": "the responses are of two lengths, such as refusals beside full answers",
    "judge_disagrees": "a judge prefers what the rules score low",
    "mean_jump": "the mean reward changed far more than it does from step to step",
    "abstains_by_length": "long, or short, responses escape judgement more often than others",
    "abstains_by_score": "responses that the rules score high, or low, escape judgement more often",
}
"""What each alarm means."""

_FEWEST_ROWS = 32
_SATURATED_SHARE = 0.95
_DISAGREEING_RHO = -0.3
_SURE_Z = 4.0
_FEWEST_ABSTAINED = 8
_FEWEST_STEPS = 9
_JUMP = 6.0


class HealthRow(NamedTuple):
    """What the checks look at of one response.

    Args:
        value: the reward; None when there is none.
        abstained: a component abstained, whatever the policy made of that.
        length: tokens that the model wrote; None where it is not known.
        rule_score: the weighted sum of the rules; None when one abstained, or there is none.
        judged: the value of each judge that reached one.
        not_finite: the components whose function returned NaN or infinity.
    """

    value: float | None
    abstained: bool = False
    length: int | None = None
    rule_score: float | None = None
    judged: Mapping[str, float] = {}
    not_finite: tuple[str, ...] = ()


class StepRow(NamedTuple):
    """A row, and the training step that it belongs to."""

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
    """The row of a sample; `rules` has the weight of each rule."""
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
    )


def step_mean(rows: Sequence[HealthRow]) -> StepMean | None:
    """The step's mean; None with fewer than 32 rewards."""
    values = [row.value for row in rows if row.value is not None]
    if len(values) < _FEWEST_ROWS:
        return None
    return StepMean(fmean(values), math.sqrt(pvariance(values) / len(values)))


def findings(rows: Sequence[HealthRow], past: Sequence[StepMean] = ()) -> list[HealthFinding]:
    """What is wrong with the rows of one step; `past` has the means of the steps before, in order.

    ``all_equal`` and ``saturated`` want 32 values; the second also looks at each judge, and fires
    when 95 % of them are the largest or the smallest of the step. ``judge_disagrees`` is a Spearman
    correlation with the rule score of -0.3 or less that is 4 standard errors from 0.
    ``abstains_by_…`` is a rank sum that is 4 standard errors from 0, with at least 8 rows on each
    side. ``mean_jump`` is a change of 6 times the median change of at least 8 steps, and of 6
    standard errors. ``bimodal_length`` is described at `two_clusters`.

    >>> [found.kind for found in findings([Row(1.0)] * 32)]
    ['all_equal']
    """
    return [
        *_levels(rows),
        *_not_finite(rows),
        *_lengths(rows),
        *_disagreement(rows),
        *_jump(rows, past),
        *_who_abstains(rows),
    ]


def _levels(rows: Sequence[HealthRow]) -> Iterator[HealthFinding]:
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


def _who_abstains(rows: Sequence[HealthRow]) -> Iterator[HealthFinding]:
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
