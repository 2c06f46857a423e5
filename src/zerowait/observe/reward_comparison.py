"""Two rewards of the same samples compared: agreement, ranks, and the signs of advantages."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from typing import Final, Literal, NamedTuple

import msgspec

from zerowait.rank_statistics import kendall_tau, rank_correlation, ranks
from zerowait.types import Abstain, Outcome, Score

ADVANTAGE: Final = (
    "advantage = reward - mean reward of the prompt group's rows that have one, as GRPO, Dr. GRPO "
    "and RLOO centre it (they differ by a factor above 0, which changes no sign)"
)
_SAME: Final = 1e-9
"""Values that differ by less, relative to the larger one, are the same number."""
SHOWN_CHARS: Final = 240
"""So much of a prompt or response is kept for people."""


class RewardedSample(msgspec.Struct, frozen=True, kw_only=True):
    """A sample with one of its rewards.

    Args:
        value: the reward; None where it abstained.
        components: the outcome of each.
        why: it abstained.
        group: identity of its prompt group within one step; None without a group.
        ticket, id, uid, text: its names, for joining: of its ticket, in its data, in its record,
            and a hash of prompt and response; empty where there is none.
        step: of the training.
        prompt, response: their beginnings, for people.
    """

    value: float | None
    components: dict[str, Outcome] = {}
    why: str = ""
    group: tuple[str, int | None, str] | None = None
    ticket: str = ""
    id: str = ""
    uid: str = ""
    text: str = ""
    step: int | None = None
    prompt: str = ""
    response: str = ""


Pair = tuple[RewardedSample, RewardedSample]
_Name = tuple[str, str, int]
"""A name, the text under it where the name repeats, and which of several with both it is."""
JoinedBy = Literal["ticket", "id", "uid", "text"]
_JOINS: Final[tuple[JoinedBy, ...]] = ("ticket", "id", "uid", "text")


class Joined(NamedTuple):
    """The samples that two sides have in common.

    Args:
        pairs: in the order of the first side.
        by: what they were joined by; None where nothing is common.
        only_a, only_b: how many rows one side alone has.
        other_response: pairs of which the responses differ, so that they are two samples.
    """

    pairs: list[Pair]
    by: JoinedBy | None
    only_a: int
    only_b: int
    other_response: int


def joined(a: Sequence[RewardedSample], b: Sequence[RewardedSample]) -> Joined:
    """The samples of both sides, joined by the name that finds most of them.

    Names are tried in the order ticket, id, uid, and the text of prompt and response; the one that
    joins most rows with equal texts is taken, and of these the one that joins most. A name that
    repeats, as that of a prompt with several responses, joins rows with equal texts only.
    """
    best: list[Pair] = []
    by: JoinedBy | None = None
    most = (0, 0)
    for name in _JOINS:
        pairs = _pairs(a, b, name)
        found = len(pairs) - _differing(pairs), len(pairs)
        if found > most:
            best, by, most = pairs, name, found
    return Joined(best, by, len(a) - len(best), len(b) - len(best), _differing(best))


def _differing(pairs: Sequence[Pair]) -> int:
    """How many pairs are two samples, as far as their texts are known."""
    return sum(bool(a.text and b.text) and a.text != b.text for a, b in pairs)


def _pairs(a: Sequence[RewardedSample], b: Sequence[RewardedSample], by: JoinedBy) -> list[Pair]:
    """The pairs with the same name; where a name repeats on a side, with the same text as well."""
    counts = (Counter(getattr(each, by) for each in side) for side in (a, b))
    repeated = {name for names in counts for name, count in names.items() if count > 1}

    def numbered(side: Sequence[RewardedSample]) -> Iterator[tuple[_Name, RewardedSample]]:
        seen: Counter[tuple[str, str]] = Counter()
        for each in side:
            name = getattr(each, by)
            if not name or (name in repeated and not each.text):
                continue
            key = name, each.text if name in repeated else ""
            seen[key] += 1
            yield (*key, seen[key]), each

    others = dict(numbered(b))
    return [(each, others[name]) for name, each in numbered(a) if name in others]


class ValueComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One number of every sample, by side A and by side B.

    Args:
        both: rows where both have a value.
        only_a, only_b, neither: rows where one abstained, or both.
        same: of `both`: how often the two values are equal.
        mean_a, mean_b: over `both`; None without rows, as the other statistics.
        mean_difference: B - A, over `both`.
        largest_difference: the greatest absolute one.
        spearman, kendall: rank correlations in [-1, 1]; None where a side has one value only.
    """

    both: int
    only_a: int
    only_b: int
    neither: int
    same: int
    mean_a: float | None
    mean_b: float | None
    mean_difference: float | None
    largest_difference: float | None
    spearman: float | None
    kendall: float | None


class SignFlips(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to the signs of the advantages within prompt groups.

    Args:
        rows: with an advantage on both sides.
        flipped: from above 0 to below it, or the other way round: trained in the other direction.
        vanished, appeared: from an advantage to 0, and from 0 to one.
        groups: with at least two rows that have a value on both sides.
        flat_a, flat_b: groups whose rows all have the same reward there, which train nothing.
    """

    rows: int
    flipped: int
    vanished: int
    appeared: int
    groups: int
    flat_a: int
    flat_b: int


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """A sample on which the two sides differ most.

    Args:
        a, b: the rewards; None where one abstained.
        rank_a, rank_b: of the rewards among the rows with a value on both sides, from 1, the
            lowest; equal rewards share the mean of their ranks. None where one abstained.
        flipped: whether the sign of its advantage flipped.
        changed: the components whose outcome changed, in words.
        unchanged: the others, likewise.
        step, id, group: where it is found.
        prompt, response: their beginnings.
    """

    a: float | None
    b: float | None
    rank_a: float | None
    rank_b: float | None
    flipped: bool
    changed: list[str]
    unchanged: list[str]
    step: int | None
    id: str
    group: str
    prompt: str
    response: str


class RewardComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two rewards of the same samples.

    Args:
        rows: compared.
        reward: of the whole sample.
        signs: of the advantages.
        components: by name; of a component that one side lacks, that side has no value.
        worst: samples whose ranks differ most, then those where one side abstained.
    """

    rows: int
    reward: ValueComparison
    signs: SignFlips
    components: dict[str, ValueComparison]
    worst: list[Disagreement]


def compare(pairs: Sequence[Pair], *, worst: int = 5) -> RewardComparison:
    """The comparison of the rewards of `pairs`.

    Args:
        pairs: each sample by side A and by side B.
        worst: how many of the largest disagreements are listed.
    """
    names = dict.fromkeys(name for pair in pairs for side in pair for name in side.components)
    signs, flipped = _signs(pairs)
    return RewardComparison(
        rows=len(pairs),
        reward=_compared((a.value, b.value) for a, b in pairs),
        signs=signs,
        components={
            name: _compared((_value(a, name), _value(b, name)) for a, b in pairs) for name in names
        },
        worst=_worst(pairs, flipped, worst),
    )


def _value(sample: RewardedSample, component: str) -> float | None:
    outcome = sample.components.get(component)
    return outcome.value if isinstance(outcome, Score) else None


def is_same(a: float, b: float) -> bool:
    """Whether two rewards are the same number, but for the rounding of sums."""
    return math.isclose(a, b, rel_tol=_SAME, abs_tol=_SAME)


def _compared(values: Iterable[tuple[float | None, float | None]]) -> ValueComparison:
    counts: Counter[tuple[bool, bool]] = Counter()
    known: list[tuple[float, float]] = []
    for a, b in values:
        counts[a is not None, b is not None] += 1
        if a is not None and b is not None:
            known.append((a, b))
    one, other = [a for a, _ in known], [b for _, b in known]
    differences = [b - a for a, b in known]
    return ValueComparison(
        both=len(known),
        only_a=counts[True, False],
        only_b=counts[False, True],
        neither=counts[False, False],
        same=sum(is_same(a, b) for a, b in known),
        mean_a=_mean(one),
        mean_b=_mean(other),
        mean_difference=_mean(differences),
        largest_difference=max(map(abs, differences), default=None),
        spearman=rank_correlation(one, other) if known else None,
        kendall=kendall_tau(one, other),
    )


def _signs(pairs: Sequence[Pair]) -> tuple[SignFlips, set[int]]:
    """The signs of the advantages on both sides, and the indices of the pairs that flipped."""
    groups: dict[tuple[str, int | None, str], list[int]] = {}
    for index, (a, _) in enumerate(pairs):
        if a.group is not None:
            groups.setdefault(a.group, []).append(index)
    changes: Counter[tuple[int, int]] = Counter()
    flipped: set[int] = set()
    compared = flat_a = flat_b = 0
    for members in groups.values():
        before = _advantages([pairs[i][0].value for i in members])
        after = _advantages([pairs[i][1].value for i in members])
        known = [
            (index, _sign(a), _sign(b))
            for index, a, b in zip(members, before, after, strict=True)
            if a is not None and b is not None
        ]
        if len(known) < 2:
            continue
        compared += 1
        flat_a += all(a == 0 for _, a, _ in known)
        flat_b += all(b == 0 for _, _, b in known)
        changes.update((a, b) for _, a, b in known)
        flipped.update(index for index, a, b in known if a * b < 0)
    return (
        SignFlips(
            rows=changes.total(),
            flipped=len(flipped),
            vanished=sum(count for (a, b), count in changes.items() if a and not b),
            appeared=sum(count for (a, b), count in changes.items() if b and not a),
            groups=compared,
            flat_a=flat_a,
            flat_b=flat_b,
        ),
        flipped,
    )


def _advantages(values: Sequence[float | None]) -> list[float | None]:
    """Each value less the mean of the known ones; 0 where they are equal but for rounding."""
    known = [value for value in values if value is not None]
    if not known:
        return list(values)
    centre = math.fsum(known) / len(known)
    scale = max(map(abs, known))
    return [
        None
        if value is None
        else 0.0
        if abs(value - centre) <= _SAME * max(scale, _SAME)
        else value - centre
        for value in values
    ]


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _worst(pairs: Sequence[Pair], flipped: set[int], most: int) -> list[Disagreement]:
    """Where the ranks differ most; a change of the scale alone is no disagreement.

    Nor is the same value on both sides, whose rank only others' values moved.
    """
    both = [i for i, (a, b) in enumerate(pairs) if a.value is not None and b.value is not None]
    ranks_a = dict(zip(both, ranks([pairs[i][0].value or 0.0 for i in both]), strict=True))
    ranks_b = dict(zip(both, ranks([pairs[i][1].value or 0.0 for i in both]), strict=True))

    def difference(index: int) -> tuple[bool, float]:
        if index in ranks_a and pairs[index][0].value == pairs[index][1].value:
            return True, 0.0
        if index in ranks_a:
            return True, abs(ranks_b[index] - ranks_a[index])
        return False, float(pairs[index][0].value is not pairs[index][1].value)

    differing = (index for index in range(len(pairs)) if difference(index)[1] > 0)
    found = nlargest(most, differing, key=lambda index: (difference(index), -index))
    return [
        _disagreement(pairs[i], (ranks_a.get(i), ranks_b.get(i)), flipped=i in flipped)
        for i in found
    ]


def _disagreement(
    pair: Pair, at: tuple[float | None, float | None], *, flipped: bool
) -> Disagreement:
    a, b = pair
    changed, unchanged = [], []
    for name in dict.fromkeys([*a.components, *b.components]):
        before, after = a.components.get(name), b.components.get(name)
        if _is_same_outcome(before, after):
            unchanged.append(f"{name} {outcome_words(after)}")
        else:
            changed.append(f"{name}: {outcome_words(before)} -> {outcome_words(after)}")
    return Disagreement(
        a=a.value,
        b=b.value,
        rank_a=at[0],
        rank_b=at[1],
        flipped=flipped,
        changed=changed,
        unchanged=unchanged,
        step=a.step,
        id=a.id,
        group="" if a.group is None else a.group[2],
        prompt=a.prompt[:SHOWN_CHARS],
        response=a.response[:SHOWN_CHARS],
    )


def _is_same_outcome(a: Outcome | None, b: Outcome | None) -> bool:
    if isinstance(a, Score) and isinstance(b, Score):
        return is_same(a.value, b.value)
    if isinstance(a, Abstain) and isinstance(b, Abstain):
        return a.kind is b.kind
    return type(a) is type(b)


def outcome_words(outcome: Outcome | None) -> str:
    """An outcome in a word: its value, the kind of failure, ``skipped``, or ``-`` for none.

    >>> outcome_words(Score(0.5)), outcome_words(Abstain("timeout")), outcome_words(None)
    ('0.5', 'timeout', '-')
    """
    if isinstance(outcome, Score):
        return f"{outcome.value:.6g}"
    if isinstance(outcome, Abstain):
        return outcome.kind.value
    return "-" if outcome is None else "skipped"


def _mean(values: list[float]) -> float | None:
    """The mean, or None for no values, which is no measurement of 0."""
    return math.fsum(values) / len(values) if values else None
