"""Rewards one by one, as soon as each is final."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from zerowait.config import FailurePolicy
from zerowait.engine import settle_groups
from zerowait.types import Reward, Sample

Indexed: TypeAlias = tuple[int, Reward]
"""A sample's index and its reward."""


class Finality:
    """Says which rewards of a list cannot change any more.

    Under ``drop_group`` a reward depends on its siblings', so that none of a group is final before
    all are known; under any other policy each is.

    Args:
        samples: the whole list.
        on_failure: the policy.
    """

    def __init__(self, samples: Sequence[Sample], on_failure: FailurePolicy) -> None:
        self._groups = [sample.group for sample in samples]
        self._quorum = on_failure.quorum
        self._waits = on_failure.can_drop
        self._missing = Counter(self._groups)
        self._held: dict[str | None, list[Indexed]] = {}

    def known(self, index: int, reward: Reward) -> list[Indexed]:
        """What is final now that this reward is known."""
        group = self._groups[index]
        if not self._waits or group is None:
            [settled] = settle_groups([reward], [None], self._quorum)
            return [(index, settled)]
        self._missing[group] -= 1
        held = self._held.setdefault(group, [])
        held.append((index, reward))
        if self._missing[group]:
            return []
        rewards = [each for _, each in self._held.pop(group)]
        settled_all = settle_groups(rewards, [group] * len(rewards), self._quorum)
        return [(at, each) for (at, _), each in zip(held, settled_all, strict=True)]


async def one_by_one(
    score_all: Callable[[Callable[[int, Reward], None]], Coroutine[Any, Any, object]],
    finality: Finality,
) -> AsyncGenerator[Indexed, None]:
    """The rewards in the order in which they become final; ends the work when nobody listens.

    Args:
        score_all: does the work and tells of each reward as soon as it is known.
        finality: of the same list.

    Raises:
        Exception: what `score_all` raises, after what was final before.
    """
    final: asyncio.Queue[Indexed | None] = asyncio.Queue()

    def told(index: int, reward: Reward) -> None:
        for each in finality.known(index, reward):
            final.put_nowait(each)

    work = asyncio.create_task(score_all(told))
    work.add_done_callback(lambda _: final.put_nowait(None))
    try:
        while (each := await final.get()) is not None:
            yield each
        await work
    finally:
        work.cancel()
        await asyncio.wait({work})
