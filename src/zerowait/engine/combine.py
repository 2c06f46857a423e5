"""Combines the outcomes of a sample's components into its reward, by weights and failure policy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from zerowait.config import FailurePolicy, Policy, Value
from zerowait.engine.gate import is_gate_closed
from zerowait.errors import JudgementError
from zerowait.scorers.real import real
from zerowait.types import Abstain, FailureKind, Outcome, Reward, Score, Skipped

_SEVERITY = {"neutral": 0, "mask": 1, "drop_group": 2}
_LARGEST = 1e30
"""Trainers keep rewards in 32 bits, which end at 3.4e38, and add up whole batches of them."""
_MOST_NAMES = 64


class Term(msgspec.Struct, frozen=True):
    """How one component enters the sum; factor 0 is a shadow component.

    Args:
        name: of the component.
        factor: of its value.
        measures: names of the numbers in a score's ``detail["measured"]`` that are metrics.
        role: what kind of component it is.
    """

    name: str
    factor: float
    measures: tuple[str, ...] = ()
    role: Literal["rule", "judge", "shape"] = "rule"


def policy_for(on_failure: FailurePolicy, component: str, outcome: Abstain) -> Policy:
    """The policy for this failure: the component's own, else the kind's, else the default.

    Where the user set none it is ``neutral``.

    Args:
        on_failure: the policies of the configuration.
        component: that abstained.
        outcome: its abstention.
    """
    own = on_failure.components.get(component)
    for level in (own, on_failure):
        if level is None:
            continue
        if outcome.kind in level.kinds:
            return level.kinds[outcome.kind]
        if level.default is not None:
            return level.default
    return "neutral"


def unraised(on_failure: FailurePolicy, kind: FailureKind) -> FailurePolicy:
    """`on_failure` with ``neutral`` wherever this kind would raise."""
    kinds = dict(on_failure.kinds)
    if kinds.get(kind, on_failure.default) == "raise":
        kinds[kind] = "neutral"
    components = {name: unraised(own, kind) for name, own in on_failure.components.items()}
    return msgspec.structs.replace(on_failure, kinds=kinds, components=components)


def combine(
    outcomes: Mapping[str, Outcome], terms: list[Term], on_failure: FailurePolicy
) -> Reward:
    """The reward of one sample: the weighted sum of what was reached, or an abstention.

    A `Skipped` component contributes 0. Where every component that counts was skipped, and not by
    its gate, nothing was measured, and the sample has no value (``neutral``): it is for no
    component's data source, or a judge that compares siblings found none. A component that
    abstained abstains the sample, unless its policy is an explicit value; then it counts as that
    value times its factor. Weights are never re-normalised: rewards are sums, and a row that lost a
    positive component would be punished. A shadow component (factor 0) can neither change nor
    abstain a reward. A sum beyond 1e30, which a trainer's 32 bits cannot hold or add up, is no
    reward: the sample abstains (out_of_range).

    Args:
        outcomes: by component.
        terms: the components with their factors.
        on_failure: the policies for abstentions.

    Raises:
        JudgementError: a component abstained and its policy is ``raise``.
    """
    total, policy = 0.0, ""
    is_measured = False
    reasons: list[str] = []
    ordered: dict[str, Outcome] = {}
    for term in terms:
        outcome = ordered[term.name] = outcomes[term.name]
        if term.factor == 0:
            continue
        if isinstance(outcome, Score):
            is_measured = True
            total += term.factor * outcome.value
        elif isinstance(outcome, Abstain):
            is_measured = True
            chosen = policy_for(on_failure, term.name, outcome)
            if isinstance(chosen, Value):
                total += term.factor * chosen.value
                continue
            reason = f"{term.name}: {outcome.kind}: {outcome.detail}"
            if chosen == "raise":
                raise JudgementError(f"{reason} (on_failure says raise)")
            if not policy or _SEVERITY[chosen] > _SEVERITY[policy]:
                policy = chosen
            reasons.append(reason)
    why = "; ".join(reasons)
    if not policy and not (is_measured and abs(total) <= _LARGEST):
        policy, why = _no_reward(total, outcomes, terms, on_failure)
    if policy:
        return Reward(None, ordered, metrics_of(ordered, terms), policy, why)
    return Reward(total, ordered, metrics_of(ordered, terms))


def _no_reward(
    total: float, outcomes: Mapping[str, Outcome], terms: list[Term], on_failure: FailurePolicy
) -> tuple[str, str]:
    """The policy for a sum that is no reward, and why it is none; both empty where it is one."""
    if not abs(total) <= _LARGEST:
        return _overflowed(total, on_failure)
    if _is_unmeasured(outcomes, terms):
        return "neutral", _not_measured(outcomes, terms)
    return "", ""


def _is_unmeasured(outcomes: Mapping[str, Outcome], terms: list[Term]) -> bool:
    """Whether all components that count were skipped, and not because a score closed a gate."""
    counting = [outcomes[term.name] for term in terms if term.factor != 0]
    judged = any(isinstance(outcome, Score) for outcome in outcomes.values())
    return bool(counting) and not (judged and any(map(is_gate_closed, counting)))


def _not_measured(outcomes: Mapping[str, Outcome], terms: list[Term]) -> str:
    skipped = ((term.name, outcomes[term.name]) for term in terms if term.factor != 0)
    whys = [f"{name}: {each.why}" for name, each in skipped if isinstance(each, Skipped)]
    return f"no component measured the sample: {'; '.join(whys)}"


def _overflowed(total: float, on_failure: FailurePolicy) -> tuple[str, str]:
    """The policy for a sum that is no reward, and why there is none."""
    outcome = Abstain(
        FailureKind.OUT_OF_RANGE,
        f"the weighted sum is {total:g}, and rewards reach from {-_LARGEST:g} to {_LARGEST:g}",
    )
    why = f"reward: {outcome.kind}: {outcome.detail}"
    chosen = policy_for(on_failure, "", outcome)
    if chosen == "raise":
        raise JudgementError(f"{why} (on_failure says raise)")
    return "neutral" if isinstance(chosen, Value) else chosen, why


def metrics_of(outcomes: Mapping[str, Outcome], terms: list[Term]) -> dict[str, float | None]:
    """``Reward.metrics``: the same names for every sample of a run; None where none was measured.

    The names depend on `terms`, which say what components there are, and on what further numbers a
    rule gave: those that another sample's rule gave are filled in by `ExtraNumbers`.
    """
    metrics: dict[str, float | None] = {}
    for name, outcome in outcomes.items():
        metrics[f"{name}/scored"] = float(isinstance(outcome, Score))
        metrics[f"{name}/abstained"] = float(isinstance(outcome, Abstain))
    further: dict[str, float | None] = {}
    is_shaped = False
    for term in terms:
        outcome = outcomes[term.name]
        detail = outcome.detail if isinstance(outcome, Score) else {}
        if term.measures:
            measured = detail.get("measured", {})
            for measure in term.measures:
                metrics[f"{term.name}/{measure}"] = measured.get(measure)
        if term.role == "rule" and detail:
            further |= _further(term.name, detail)
        is_shaped = is_shaped or term.role == "shape"
    if is_shaped:
        metrics |= _shaped(outcomes, terms)
    return further | metrics


def _further(name: str, detail: Mapping[str, Any]) -> dict[str, float | None]:
    """The numbers that a rule gave beside its score, such as ``mine/acc``; None for NaN."""
    numbers: dict[str, float | None] = {}
    for key, value in detail.items():
        number = real(value)
        if number is not None:
            numbers[f"{name}/{key}"] = number if math.isfinite(number) else None
    return numbers


class ExtraNumbers:
    """Keeps ``Reward.metrics`` under the same names, whatever further numbers users' rules give.

    A function may give ``acc`` for one sample and fail on the next, and a table of metrics needs a
    cell for both. So a name that came once is there from then on, None where there is no number.
    At most 64 are kept: a function that makes up names would fill the memory.
    """

    def __init__(self, terms: list[Term]) -> None:
        self._rules = tuple(f"{term.name}/" for term in terms if term.role == "rule")
        self._names: dict[str, None] = {}
        self.may_be_needed = bool(self._rules)

    def filled(self, reward: Reward) -> Reward:
        """The reward with a metric for every name that came so far."""
        metrics = {k: v for k, v in reward.metrics.items() if k in self._names or self._is_kept(k)}
        missing = self._names.keys() - metrics.keys()
        if not missing and len(metrics) == len(reward.metrics):
            return reward
        ordered = [name for name in self._names if name in missing]
        return msgspec.structs.replace(reward, metrics=metrics | dict.fromkeys(ordered))

    def _is_kept(self, name: str) -> bool:
        if not name.startswith(self._rules):
            return True
        if len(self._names) < _MOST_NAMES:
            self._names[name] = None
            return True
        return name.endswith(("/scored", "/abstained"))


def _shaped(outcomes: Mapping[str, Outcome], terms: list[Term]) -> dict[str, float | None]:
    """What a shaped reward is made of: ``original_score + quality_reward - length_penalty``."""
    penalty = _part(outcomes, terms, "shape")
    details = [
        outcome.detail
        for term in terms
        if term.role == "shape" and isinstance(outcome := outcomes[term.name], Score)
    ]
    return {
        "original_score": _part(outcomes, terms, "rule"),
        "quality_reward": _part(outcomes, terms, "judge"),
        "length_penalty": None if penalty is None else 0.0 - penalty,
        "response_length": _first(details, "response_length"),
        "median_length": _first(details, "median_length"),
    }


def _part(outcomes: Mapping[str, Outcome], terms: list[Term], role: str) -> float | None:
    """What the components of one role contribute; None when one of them abstained."""
    total = 0.0
    for term in terms:
        outcome = outcomes[term.name]
        if term.role != role or term.factor == 0 or isinstance(outcome, Skipped):
            continue
        if isinstance(outcome, Abstain):
            return None
        total += term.factor * outcome.value
    return total if math.isfinite(total) else None


def _first(details: list[dict[str, Any]], name: str) -> float | None:
    return next((float(detail[name]) for detail in details if name in detail), None)


def settle_groups(rewards: list[Reward], groups: list[str | None], quorum: float) -> list[Reward]:
    """The rewards after ``drop_group``: a group below the quorum loses all its values.

    In a group at or above the quorum (the share of members that have a value) a ``drop_group``
    failure is ``neutral``. Rows without a group are a group of one.

    Args:
        rewards: of a batch.
        groups: of the same rows.
        quorum: the share of members in [0, 1].
    """
    asked = [i for i, reward in enumerate(rewards) if reward.policy == "drop_group"]
    if not asked:
        return rewards
    members: dict[str, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(f"#{index}" if group is None else f"={group}", []).append(index)
    settled = list(rewards)
    for indices in members.values():
        if not any(rewards[i].policy == "drop_group" for i in indices):
            continue
        survivors = sum(rewards[i].value is not None for i in indices)
        dropped = survivors < quorum * len(indices)
        for i in indices:
            settled[i] = _dropped(rewards[i]) if dropped else _kept(rewards[i])
    return settled


def _dropped(reward: Reward) -> Reward:
    why = reward.why or "its group fell below the quorum"
    return msgspec.structs.replace(reward, value=None, policy="drop_group", why=why)


def _kept(reward: Reward) -> Reward:
    if reward.policy != "drop_group":
        return reward
    return msgspec.structs.replace(reward, policy="neutral")
