"""Which responses to a prompt there are, once all of its rollouts have ended."""

from __future__ import annotations

from collections.abc import Iterable

from zerowait.hub.tickets import ticket_of
from zerowait.types import Sample

_SPLITS = {"val": "validation"}


def ended(samples: Iterable[Sample]) -> tuple[dict[str, int], set[str]]:
    """What failed rollouts left of groups.

    Args:
        samples: every ticket of some groups whose rollouts have all ended.

    Returns:
        By ticket, how many its group has, for groups that have fewer than was announced; and the
        tickets of the others, which may have been handed in before their rollouts failed.
    """
    groups: dict[tuple[str, str], dict[str, Sample]] = {}
    for sample in samples:
        if sample.group is not None:
            groups.setdefault((sample.split, sample.group), {})[ticket_of(sample)] = sample
    of: dict[str, int] = {}
    lost: set[str] = set()
    for (split, group), here in groups.items():
        announced = max(sample.group_size or 1 for sample in here.values())
        if len(here) < announced:
            of |= dict.fromkeys(here, len(here))
            lost |= names(split, group, announced) - here.keys()
    return of, lost


def tickets_in(partition_id: str, uids: Iterable[str], responses: int) -> set[str]:
    """The names that the tickets of these prompts have, whether or not they were handed in."""
    split = _SPLITS.get(partition_id, partition_id)
    return {name for uid in uids for name in names(split, uid, responses)}


def names(split: str, group: str, responses: int) -> set[str]:
    """The tickets of a group, as `zerowait.verl.rewards.manager` names their samples.

    >>> sorted(names("train", "u", 2))
    ['train/u_0', 'train/u_1']
    """
    return {f"{split}/{group}_{session}" for session in range(responses)}
