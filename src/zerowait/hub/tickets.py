"""Tickets: samples that one process deposits and another redeems for their rewards later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import msgspec

from zerowait.errors import ClosedError
from zerowait.types import Reward, Sample


def ticket_of(sample: Sample) -> str:
    """The name of a sample's ticket: its split and its id."""
    return f"{sample.split}/{sample.id}"


class Deposit(msgspec.Struct, frozen=True):
    """The request that deposits a sample; its result is None."""

    sample: Sample


class Redemption(msgspec.Struct, frozen=True):
    """The request for the reward of a deposited sample.

    Args:
        sample: the deposited one.
        of: how many samples of its group will be redeemed, where that is known; see
            `zerowait.hub.JobHub.redeem`.
    """

    sample: Sample
    of: int | None = None


class Tickets:
    """Judgements that run in the background until they are redeemed; belongs to one event loop.

    A ticket is a sample that has an id. The redeemer brings the sample again, so that a restarted
    hub, which has lost all tickets, can judge it then: from the cache, where there is one.

    Args:
        reward: gives a sample's reward.
    """

    def __init__(self, reward: Callable[[Sample], Coroutine[Any, Any, Reward]]) -> None:
        self._reward = reward
        self._open: dict[str, asyncio.Task[Reward]] = {}

    def __len__(self) -> int:
        """Tickets that were deposited and not redeemed."""
        return len(self._open)

    def deposit(self, samples: Iterable[Sample]) -> None:
        """Begin to judge `samples`; one that was deposited before goes on."""
        for sample in samples:
            self._judgement(sample)

    async def redeem(self, sample: Sample) -> Reward:
        """The sample's reward, as soon as it is known; its ticket is dropped then.

        Raises:
            JudgementError, DataError: as the engine raised it.
            ClosedError: the hub was closed, or the ticket was given up meanwhile.
        """
        ticket, task = ticket_of(sample), self._judgement(sample)
        try:
            # `wait` leaves the task running when this caller is cancelled: another may redeem it
            await asyncio.wait({task})
            if task.cancelled():  # not as CancelledError, which would cancel this caller
                raise ClosedError(f"the ticket {ticket!r} was given up")
            return task.result()
        finally:
            if task.done() and self._open.get(ticket) is task:
                del self._open[ticket]

    def give_up(self, tickets: Iterable[str]) -> None:
        """Stop judging samples that will not be redeemed.

        Args:
            tickets: see `ticket_of`; unknown ones are ignored.
        """
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

    def _judgement(self, sample: Sample) -> asyncio.Task[Reward]:
        ticket = ticket_of(sample)
        task = self._open.get(ticket)
        if task is None:
            task = self._open[ticket] = asyncio.create_task(self._reward(sample))
            # asyncio logs exceptions that are never retrieved, and a ticket may stay unredeemed
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task
