"""Decide how each session's row enters training: trained, neutral or masked."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from zerowait.engine import settle_groups
from zerowait.types import Reward, Sample


class RowTreatment(StrEnum):
    """How a row enters training.

    ``trained``: its value is part of baselines and advantages. ``neutral``: advantage 0 and out of
    every baseline, but still counted in the loss's denominators and the KL term. ``masked``: out of
    the loss altogether.
    """

    TRAINED = "trained"
    NEUTRAL = "neutral"
    MASKED = "masked"


class SettledSession(msgspec.Struct, frozen=True):
    """A session's reward after the rules of its group were applied, and its row's treatment."""

    reward: Reward
    treatment: RowTreatment


def settle(
    sessions: Mapping[str, tuple[Sample, Reward]],
    *,
    quorum: float,
    group_baseline: bool,
    others: Mapping[str, int],
) -> dict[str, SettledSession]:
    """The settled session for each key of `sessions`.

    A row without a value follows its failure policy; all rows of a group dropped below `quorum` are
    masked. With a baseline over the group, the only row with a value in a group of several is
    neutral, because verl would take its raw reward for its advantage. A group that has one response
    by configuration is left to verl.

    Args:
        sessions: each session's sample and reward.
        quorum: under ``drop_group``, the share of a group that must have a value, in [0, 1].
        group_baseline: whether the estimator compares the responses of a group.
        others: by group, how many further responses have a reward from their agent loop.
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
        treatment = _treatment(reward)
        alone = group_baseline and sample.group is not None and valued.get(sample.group) == 1
        if treatment is RowTreatment.TRAINED and alone and (sample.group_size or 1) > 1:
            treatment = RowTreatment.NEUTRAL
        settled[name] = SettledSession(reward, treatment)
    return settled


def _treatment(reward: Reward) -> RowTreatment:
    if reward.value is not None:
        return RowTreatment.TRAINED
    # a reward of which nothing was measured has no policy: neutral
    return RowTreatment.MASKED if reward.policy in ("mask", "drop_group") else RowTreatment.NEUTRAL
