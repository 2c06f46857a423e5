"""The input and output of shapes: a view of the prompt group, and penalties."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from zerowait.types import Abstain, FailureKind, Score

FULL_SCORE: Final = 1.0
"""The score of a right answer, unless the rule's option ``score`` says otherwise."""

_ROUNDING = 1e-9  # the weighted sum of full scores may miss its value by the last bit of a float
_LARGEST = 1e30  # beyond it, products with lengths and sums of rewards may be infinite

Penalties: TypeAlias = list[Score | Abstain]
"""One outcome per member of the group, in order; a Score's value is minus the penalty."""


class GroupView(msgspec.Struct, frozen=True):
    """All finished responses to one prompt, as far as a shape looks at them.

    Args:
        lengths: tokens that the model wrote, per member; None where that is not known.
        rule_scores: weighted sum of the rules, per member; None where one abstained.
        targets: the length in tokens each member was asked for; None where there is none.
        responses: the texts.
        rights: whether each member is correct, as its rules say; None where one abstained.

    Raises:
        ValueError: the sequences differ in length, or hold what is no length or no score.
    """

    lengths: Sequence[int | None]
    rule_scores: Sequence[float | None] = ()
    targets: Sequence[Any] = ()
    responses: Sequence[str] = ()
    rights: Sequence[bool | None] = ()

    def __post_init__(self) -> None:
        size = len(self.lengths)
        for name in ("rule_scores", "rights", "targets", "responses"):
            given = getattr(self, name)
            if given and len(given) != size:
                raise ValueError(f"a group of {size} has {len(given)} {name}")
        for length in self.lengths:
            require(
                length is None or (isinstance(length, Real) and length >= 0 and length % 1 == 0),
                f"lengths are whole numbers of tokens, at least 0, and not {length!r}",
            )
        for score in self.rule_scores:
            require(score is None or math.isfinite(score), f"rule_scores has a {score!r}")


class Shape(Protocol):
    """A term that depends on a whole prompt group."""

    @property
    def needs_scores(self) -> bool:
        """Whether it depends on the members' rule scores."""

    def penalties(self, group: GroupView) -> Penalties:
        """One outcome per member: minus its penalty, or why there is none."""


def known_lengths(group: GroupView) -> list[int] | None:
    """The lengths of all members; None when one of them is not known."""
    lengths = [length for length in group.lengths if length is not None]
    return lengths if len(lengths) == len(group.lengths) else None


def known_scores(group: GroupView) -> list[float | None]:
    """The members' rule scores; None for all where the group brings none."""
    return list(group.rule_scores) or [None] * len(group.lengths)


def correct_members(group: GroupView, correct: float | None) -> list[bool | None]:
    """Which members are correct; None where the rules abstained.

    A wrong answer in the right form may have a score, too (``format_score``), so that a score above
    0 does not make a member correct.

    Args:
        group: the members.
        correct: the rule score from which on a member is correct. Where it is None, the group's
            `rights` say it, and without those a rule score of 1.

    >>> correct_members(GroupView([9, 9], [0.1, 1.0]), None)
    [False, True]
    """
    if correct is None and group.rights:
        return list(group.rights)
    from_score = FULL_SCORE if correct is None else correct
    return [
        None if score is None else score >= from_score - _ROUNDING for score in known_scores(group)
    ]


def target_of(group: GroupView, index: int) -> float | None:
    """The length that a member was asked for; None when there is no such number."""
    target = group.targets[index] if group.targets else None
    # numpy's whole numbers are Integral, and no int
    if isinstance(target, bool) or not isinstance(target, Real):
        return None
    try:
        tokens = float(target)
    except OverflowError:
        return None
    return tokens if math.isfinite(tokens) and tokens > 0 else None


def contribution(penalty: float, length: int | None, **detail: float) -> Score:
    """The Score of a member: minus its penalty, with the numbers behind it as detail.

    >>> contribution(0.5, 120, median_length=100.0).detail
    {'penalty': 0.5, 'response_length': 120, 'median_length': 100.0}
    """
    shown: dict[str, Any] = {"penalty": penalty}
    if length is not None:
        shown["response_length"] = length
    return Score(-penalty if penalty else 0.0, "", shown | detail)


def no_length() -> Abstain:
    """The abstention where a length is not known."""
    return Abstain(FailureKind.BAD_INPUT, "response_tokens is missing in the group")


def no_score() -> Abstain:
    """The abstention where the rules abstained."""
    return Abstain(
        FailureKind.BAD_INPUT, "no rule reached a score for the response, which the shape needs"
    )


def no_target() -> Abstain:
    """The abstention where the sample has no target length."""
    return Abstain(FailureKind.BAD_INPUT, "target_tokens is no number greater than 0")


def require(condition: object, message: str) -> None:
    """Raises a ValueError with `message` unless `condition` holds."""
    if not condition:
        raise ValueError(message)


def finite_values(**numbers: float) -> None:
    """Raises a ValueError that names the first of `numbers` that is NaN or beyond 1e30."""
    for name, number in numbers.items():
        require(abs(number) < _LARGEST, f"{name} must be a finite number, not {number!s:.40}")


def clipped(value: float, low: float, high: float) -> float:
    """`value`, but not below `low` and not above `high`."""
    return min(max(value, low), high)
