"""Rewards of a list of samples, one by one, each as soon as it is final."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from zerowait.config import FailurePolicy
from zerowait.engine.combine import settle_groups
from zerowait.types import Reward, Sample

IndexedReward: TypeAlias = tuple[int, Reward]
"""A sample's index and its reward."""


class FinalRewards:
    """Releases the rewards of a list once they are final.

    Under ``drop_group`` a reward depends on those of its group, so none of a group is final before
    all are known. Under any other policy each reward is final at once.

    Args:
        samples: the whole list.
        on_failure: the failure policy.
    """

    def __init__(self, samples: Sequence[Sample], on_failure: FailurePolicy) -> None:
        self._groups = [sample.group for sample in samples]
        self._quorum = on_failure.quorum
        self._by_group = on_failure.can_drop
        self._missing = Counter(self._groups)
        self._held: dict[str | None, list[IndexedReward]] = {}

    @property
    def held(self) -> list[IndexedReward]:
        """The rewards that are known and not final yet."""
        return [each for group in self._held.values() for each in group]

    def add(self, index: int, reward: Reward) -> list[IndexedReward]:
        """The rewards that are final now that this one is known."""
        if not self._by_group:
            return [(index, reward)]
        group = self._groups[index]
        if group is None:
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


async def stream_final(
    score_all: Callable[[Callable[[int, Reward], None]], Coroutine[Any, Any, object]],
    final_rewards: FinalRewards,
) -> AsyncGenerator[IndexedReward, None]:
    """Rewards in the order in which they become final; closing the generator cancels the work.

    Args:
        score_all: scores the samples, and calls its argument with each index and reward.
        final_rewards: of the same samples.

    Raises:
        Exception: what `score_all` raises, after the rewards that were final before.
    """
    final: asyncio.Queue[IndexedReward | None] = asyncio.Queue()

    def on_reward(index: int, reward: Reward) -> None:
        for each in final_rewards.add(index, reward):
            final.put_nowait(each)

    work = asyncio.create_task(score_all(on_reward))
    work.add_done_callback(lambda _: final.put_nowait(None))
    try:
        while (each := await final.get()) is not None:
            yield each
        await work
    finally:
        work.cancel()
        await asyncio.wait({work})
