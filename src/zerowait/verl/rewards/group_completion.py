"""Which tickets of a prompt group exist once all of its rollouts have ended."""

from __future__ import annotations

from collections.abc import Iterable

from zerowait.hub.tickets import ticket_of
from zerowait.types import Sample

_SPLITS = {"val": "validation"}


def incomplete_groups(samples: Iterable[Sample]) -> tuple[dict[str, int], set[str]]:
    """The real sizes of groups with failed rollouts, and the tickets that will not be redeemed.

    Args:
        samples: all tickets of some groups whose rollouts have all ended.

    Returns:
        sizes: by ticket, how many responses its group has, for groups with fewer than announced.
        missing: the tickets of the failed rollouts. The hub may hold some of them: a rollout can
            fail after its ticket was deposited.
    """
    groups: dict[tuple[str, str], dict[str, Sample]] = {}
    for sample in samples:
        if sample.group is not None:
            groups.setdefault((sample.split, sample.group), {})[ticket_of(sample)] = sample
    sizes: dict[str, int] = {}
    missing: set[str] = set()
    for (split, group), present in groups.items():
        announced = max(sample.group_size or 1 for sample in present.values())
        if len(present) < announced:
            sizes |= dict.fromkeys(present, len(present))
            missing |= ticket_names(split, group, announced) - present.keys()
    return sizes, missing


def tickets_of_prompts(partition_id: str, uids: Iterable[str], responses: int) -> set[str]:
    """The names of all tickets that prompts can have, deposited or not.

    Args:
        partition_id: verl's partition: ``train`` or ``val``.
        uids: of the prompts.
        responses: to each prompt.
    """
    split = _SPLITS.get(partition_id, partition_id)
    return {name for uid in uids for name in ticket_names(split, uid, responses)}


def ticket_names(split: str, group: str, responses: int) -> set[str]:
    """The tickets of a group, as `zerowait.verl.rewards.manager` names their samples.

    >>> sorted(ticket_names("train", "u", 2))
    ['train/u_0', 'train/u_1']
    """
    return {f"{split}/{group}_{session}" for session in range(responses)}
