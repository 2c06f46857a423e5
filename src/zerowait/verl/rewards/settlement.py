"""What becomes of each session of a step once its reward is known or known to be missing."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from zerowait.engine import settle_groups
from zerowait.types import Reward, Sample


class RowTreatment(StrEnum):
    """What a row's reward does to training.

    ``trained``: its value is part of baselines and advantages. ``neutral``: no push, advantage 0,
    out of every baseline; it stays in the loss's denominators and the KL term. ``masked``: out of
    the loss altogether.
    """

    TRAINED = "trained"
    NEUTRAL = "neutral"
    MASKED = "masked"


class SettledSession(msgspec.Struct, frozen=True):
    """A session's reward after its group had its say, and what that does to training."""

    reward: Reward
    fate: RowTreatment


def settle(
    sessions: Mapping[str, tuple[Sample, Reward]],
    *,
    quorum: float,
    group_baseline: bool,
    others: Mapping[str, int],
) -> dict[str, SettledSession]:
    """Each session's fate, under the names that `sessions` has for them.

    A row without a value is what its policy says; the rows of a group dropped below `quorum` are
    masked. With a baseline over the group, the only survivor of a group that was to have more
    responses is neutral: verl would take its raw reward for its advantage. A group of one response
    by configuration is left to verl.

    Args:
        sessions: each session's sample and reward.
        quorum: under ``drop_group``, the share of a group that must have a value.
        group_baseline: whether the estimator compares siblings.
        others: by group, siblings that brought a reward of their own.
    """
    samples = [sample for sample, _ in sessions.values()]
    groups = [sample.group for sample in samples]
    rewards = settle_groups([reward for _, reward in sessions.values()], groups, quorum)
    valued = dict(others)
    for group, reward in zip(groups, rewards, strict=True):
        if group is not None and reward.value is not None:
            valued[group] = valued.get(group, 0) + 1
    settled = {}
    for name, sample, reward in zip(sessions, samples, rewards, strict=True):
        fate = _fate(reward)
        alone = group_baseline and sample.group is not None and valued.get(sample.group) == 1
        if fate is RowTreatment.TRAINED and alone and (sample.group_size or 1) > 1:
            fate = RowTreatment.NEUTRAL
        settled[name] = SettledSession(reward, fate)
    return settled


def _fate(reward: Reward) -> RowTreatment:
    if reward.value is not None:
        return RowTreatment.TRAINED
    # a reward of which nothing was measured has no policy, and pushes nothing
    return RowTreatment.MASKED if reward.policy in ("mask", "drop_group") else RowTreatment.NEUTRAL
