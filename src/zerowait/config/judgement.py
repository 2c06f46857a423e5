"""Judgements of more than one plain answer: votes, panels, a monitor."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import msgspec

from zerowait.config.checks import finite

Pooling: TypeAlias = Literal["mean", "median", "majority"]
"""How several verdicts become one; ``majority``: the verdict that is given most often."""


class Votes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One judge is asked the same question `n` times.

    Args:
        n: calls per judgement.
        by: how the votes become one verdict.
        quorum: votes that have to succeed, or the judgement abstains; None: more than half.
    """

    n: int
    by: Pooling = "mean"
    quorum: int | None = None

    def __post_init__(self) -> None:
        if self.n < 2:
            raise ValueError(f"n must be at least 2, not {self.n}: without votes a judge gives one")
        _check_quorum(self.quorum, self.n)

    @property
    def needed(self) -> int:
        """How many votes have to succeed."""
        return self.n // 2 + 1 if self.quorum is None else self.quorum


class Panel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Several judges are asked about the same sample.

    Args:
        members: names of judges; they need no component of their own.
        by: how their verdicts become one.
        quorum: members that have to give a verdict, or the panel abstains; None: more than half.
        normalize: maps each member's range to [0, 1] first; else all ranges have to be the same.
    """

    members: list[str]
    by: Pooling = "mean"
    quorum: int | None = None
    normalize: bool = False

    def __post_init__(self) -> None:
        if len(self.members) < 2:
            raise ValueError("a panel needs at least two members")
        twice = next((name for name in self.members if self.members.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"the member {twice!r} is named twice; for more calls give it 'votes'")
        _check_quorum(self.quorum, len(self.members))

    @property
    def needed(self) -> int:
        """How many members have to give a verdict."""
        return len(self.members) // 2 + 1 if self.quorum is None else self.quorum


class PanelEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of ``judges`` that is a panel, and nothing besides."""

    panel: Panel


class Rebalance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How frequent each truth is in the data; one of the two is enough.

    Args:
        true: share of the samples whose property holds, in (0, 1).
        false: share of the others.
    """

    true: float | None = None
    false: float | None = None

    def __post_init__(self) -> None:
        shares = [share for share in (self.true, self.false) if share is not None]
        if not shares:
            raise ValueError("rebalance needs the share of 'true' or of 'false'")
        if not all(0 < share < 1 for share in shares):
            raise ValueError(f"rebalance's shares must be greater than 0 and below 1, not {shares}")
        if len(shares) == 2 and not math.isclose(sum(shares), 1.0, abs_tol=1e-6):
            raise ValueError(f"rebalance's shares must add up to 1, not {sum(shares):g}")

    def share(self, *, truth: bool) -> float:
        """The share of the samples with this truth, in (0, 1).

        >>> round(Rebalance(true=0.7).share(truth=False), 9)
        0.3
        """
        given, other = (self.true, self.false) if truth else (self.false, self.true)
        return given if given is not None else 1.0 - (other or 0.0)


class Monitor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The judge sees the reasoning alone and predicts a property of the sample.

    Args:
        truth: the key of the sample's ``extra`` that says whether the property holds.
        correct_reward: what a right prediction is worth to the policy.
        wrong_reward: what a wrong one is worth.
        within: the reasoning is the text between these tags; ``think`` without `before`.
        before: the reasoning is the text before the last occurrence of this text.
        rebalance: divides the reward by how frequent the sample's truth is.
    """

    truth: str = "is_correct"
    correct_reward: float = -1.0
    wrong_reward: float = 1.0
    within: str | None = None
    before: str | None = None
    rebalance: Rebalance | None = None

    def __post_init__(self) -> None:
        finite("correct_reward", self.correct_reward)
        finite("wrong_reward", self.wrong_reward)
        if self.correct_reward == self.wrong_reward:
            raise ValueError(
                "correct_reward and wrong_reward are equal, so the judge changes nothing"
            )
        if self.within is not None and self.before is not None:
            raise ValueError("the reasoning is either 'within' tags or 'before' a text, not both")
        if self.within is not None and not self.within.replace("_", "").isalnum():
            raise ValueError(f"within is a tag's name such as think, not {self.within!r}")
        if self.before is not None and not self.before.strip():
            raise ValueError("before must be a text such as <answer>")


def _check_quorum(quorum: int | None, most: int) -> None:
    if quorum is not None and not 1 <= quorum <= most:
        raise ValueError(f"quorum must be from 1 to {most}, not {quorum}")
