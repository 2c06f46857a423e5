"""The trainer's side of its tickets: rewards come in while it computes something else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from zerowait.engine import Portal, Stats
from zerowait.errors import ClosedError, ZerowaitError
from zerowait.hub.tickets import ticket_of
from zerowait.types import Reward, Sample


class TicketHub(Protocol):
    """Where tickets are redeemed: a handle on the job's hub."""

    async def redeem(self, sample: Sample, *, of: int | None = None) -> Reward:
        """The reward of a sample that was handed in, `of` so many of its group."""

    async def give_up(self, tickets: Iterable[str]) -> None:
        """Stop judging what nobody will redeem."""

    async def stats(self) -> Stats:
        """A frozen snapshot of the whole job."""


class Redeemer:
    """Fetches rewards on a loop thread of its own; opened and closed with ``with`` or `close`.

    Args:
        hub: opens the handle on the job's hub, on the loop's own thread.
        late: the reward of a sample that was not judged in time.
    """

    def __init__(
        self, hub: Callable[[], Coroutine[Any, Any, TicketHub]], *, late: Callable[[Sample], Reward]
    ) -> None:
        self._portal = Portal("zerowait-tickets")
        self._late = late
        self._news = threading.Condition()
        self._waiting: dict[str, Sample] = {}
        self._rewards: dict[str, Reward] = {}
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._failed: ZerowaitError | None = None
        try:
            self._hub = self._portal.call(hub)
        except BaseException:
            self._portal.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def pending(self) -> int:
        """Tickets whose reward was asked for and is not known."""
        return len(self._waiting)

    def begin(self, samples: Iterable[Sample], *, of: Mapping[str, int] | None = None) -> None:
        """Begin to fetch rewards, and return at once; what is under way goes on.

        Args:
            samples: what was handed in.
            of: by ticket, how many of its group there are, where some of them will never come.
        """
        with self._news:
            fresh = {
                ticket: sample
                for sample in samples
                if (ticket := ticket_of(sample)) not in self._waiting
                and ticket not in self._rewards
            }
            self._waiting |= fresh
        if fresh:
            self._portal.submit(lambda: self._fetch_all(fresh, of or {}))

    def known(self, samples: Iterable[Sample]) -> dict[str, Reward] | None:
        """The rewards by ticket when all of them are known, else None; never waits.

        Raises:
            JudgementError, HubLostError: a reward cannot be had, and training has to stop.
        """
        with self._news:
            self._refuse()
            tickets = [ticket_of(sample) for sample in samples]
            if any(ticket not in self._rewards for ticket in tickets):
                return None
            return {ticket: self._rewards[ticket] for ticket in tickets}

    def collect(self, samples: Iterable[Sample], *, within_s: float) -> dict[str, Reward]:
        """The rewards by ticket; waits until all are known, and no longer than `within_s`.

        What is not known then is given up, and is what `late` makes of it.

        Raises:
            JudgementError, HubLostError: a reward cannot be had, and training has to stop.
        """
        wanted = {ticket_of(sample): sample for sample in samples}
        self.begin(wanted.values())
        give_up_at = time.monotonic() + within_s
        with self._news:
            while not wanted.keys() <= self._rewards.keys():
                self._refuse()
                left_s = give_up_at - time.monotonic()
                if left_s <= 0:
                    break
                self._news.wait(left_s)
            missing = {t: s for t, s in wanted.items() if t not in self._rewards}
            for ticket, sample in missing.items():
                self._rewards[ticket] = self._late(sample)
                self._waiting.pop(ticket, None)
            rewards = {ticket: self._rewards[ticket] for ticket in wanted}
        self.give_up(missing)
        return rewards

    def forget(self, samples: Iterable[Sample]) -> None:
        """Give up what is not known, and drop what is: nobody will ask for it again."""
        unknown = {}
        with self._news:
            for sample in samples:
                ticket = ticket_of(sample)
                if self._rewards.pop(ticket, None) is None:
                    self._waiting.pop(ticket, None)
                    unknown[ticket] = sample
        self.give_up(unknown)

    def give_up(self, tickets: Iterable[str]) -> None:
        """Let the hub stop judging what was handed in and never asked for."""
        names = list(tickets)
        if names:
            self._portal.submit(lambda: self._abandon(names))

    def wait_for_news(self, within_s: float) -> None:
        """Return when some reward has come, or after `within_s`."""
        with self._news:
            self._news.wait(within_s)

    def stats(self) -> Stats:
        """A frozen snapshot of the job's hub."""
        return self._portal.call(self._hub.stats)

    def close(self) -> None:
        """Stop fetching and end the thread. Idempotent."""
        self._portal.close()

    async def _fetch_all(self, samples: Mapping[str, Sample], of: Mapping[str, int]) -> None:
        async with asyncio.TaskGroup() as group:
            for ticket, sample in samples.items():
                fetching = self._fetch(ticket, sample, of.get(ticket))
                self._fetching[ticket] = group.create_task(fetching)

    async def _fetch(self, ticket: str, sample: Sample, of: int | None) -> None:
        result: Reward | ZerowaitError
        try:
            result = await self._hub.redeem(sample, of=of)
        except ZerowaitError as error:
            result = error
        except BaseException as error:
            self._settle(ticket, ClosedError(f"fetching rewards ended: {type(error).__name__}"))
            raise
        self._settle(ticket, result)

    async def _abandon(self, tickets: list[str]) -> None:
        for ticket in tickets:
            fetching = self._fetching.pop(ticket, None)
            if fetching is not None:
                fetching.cancel()
        await self._hub.give_up(tickets)

    def _settle(self, ticket: str, result: Reward | ZerowaitError) -> None:
        if self._fetching.get(ticket) is not asyncio.current_task():
            return  # given up meanwhile, and perhaps begun again by another task
        del self._fetching[ticket]
        with self._news:
            if self._waiting.pop(ticket, None) is None:
                return  # given up meanwhile, and the word has not reached this thread
            if isinstance(result, Reward):
                self._rewards[ticket] = result
            elif self._failed is None:
                self._failed = result
            self._news.notify_all()

    def _refuse(self) -> None:
        """Raises what has made a reward impossible."""
        if self._failed is not None:
            raise self._failed
