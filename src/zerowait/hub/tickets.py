"""Rewards that are handed in by one process and fetched later by another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from zerowait.errors import ClosedError
from zerowait.types import Reward, Sample


def ticket_of(sample: Sample) -> str:
    """The name under which a sample is handed in and fetched: its split and its id."""
    return f"{sample.split}/{sample.id}"


class Deposit(msgspec.Struct, frozen=True):
    """What is sent to hand in a sample; nothing comes back but that the hub has it."""

    sample: Sample


class Redemption(msgspec.Struct, frozen=True):
    """What is sent to fetch a sample's reward.

    Args:
        sample: what was handed in.
        of: how many of its group will be fetched, where that is known; the others never come.
    """

    sample: Sample
    of: int | None = None


class Tickets:
    """Judgements that nobody waits for yet; it belongs to one event loop.

    A ticket is a sample that has an id. Whoever fetches it brings the sample again, so that a hub
    that was started anew and knows no ticket judges it then: from the cache, where there is one.

    Args:
        reward: gives a sample's reward.
    """

    def __init__(self, reward: Callable[[Sample], Awaitable[Reward]]) -> None:
        self._reward = reward
        self._open: dict[str, asyncio.Task[Reward]] = {}

    def __len__(self) -> int:
        """Tickets that were handed in and not fetched."""
        return len(self._open)

    def deposit(self, samples: Iterable[Sample]) -> None:
        """Begin to judge `samples`; one that was handed in before goes on."""
        for sample in samples:
            self._judged(sample)

    async def redeem(self, sample: Sample) -> Reward:
        """The sample's reward, as soon as it is known; its ticket is forgotten then.

        Raises:
            JudgementError, DataError: as the engine raised it.
            ClosedError: likewise, or somebody gave the ticket up meanwhile.
        """
        task = self._judged(sample)
        # whoever stops waiting does not stop the judgement: somebody else may come for it
        try:
            await asyncio.wait({task})
            if task.cancelled():  # raised as such, it would end the caller, who was not cancelled
                raise ClosedError(f"the ticket {ticket_of(sample)!r} was given up")
            return task.result()
        finally:
            ticket = ticket_of(sample)
            if task.done() and self._open.get(ticket) is task:
                del self._open[ticket]

    def give_up(self, tickets: Iterable[str]) -> None:
        """Stop judging what nobody will fetch."""
        for ticket in tickets:
            task = self._open.pop(ticket, None)
            if task is not None:
                task.cancel()

    async def aclose(self) -> None:
        """Give up every ticket."""
        tasks = list(self._open.values())
        self.give_up(list(self._open))
        if tasks:
            await asyncio.wait(tasks)

    def _judged(self, sample: Sample) -> asyncio.Task[Reward]:
        ticket = ticket_of(sample)
        task = self._open.get(ticket)
        if task is None:
            task = self._open[ticket] = asyncio.create_task(self._judge(sample))
            task.add_done_callback(_looked_at)
        return task

    async def _judge(self, sample: Sample) -> Reward:
        return await self._reward(sample)


def _looked_at(task: asyncio.Task[Reward]) -> None:
    """Keeps asyncio from complaining about the failure of a ticket that is never fetched."""
    if not task.cancelled():
        task.exception()
