"""Redeem tickets in the background: rewards arrive while the trainer computes something else."""

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
    """The client of the job's hub that a `Redeemer` needs."""

    async def redeem(self, sample: Sample, *, of: int | None = None) -> Reward:
        """The reward of a deposited sample; `of` is its group's size if not the announced one."""

    async def give_up(self, tickets: Iterable[str]) -> None:
        """Stop judging these tickets: they will not be redeemed."""

    async def stats(self) -> Stats:
        """A frozen snapshot of the whole job."""


class Redeemer:
    """Fetches rewards on an event loop in a thread of its own; close it with ``with`` or `close`.

    Args:
        hub: opens the client of the job's hub, on that event loop.
        on_timeout: the reward of a sample that was not judged in time.
    """

    def __init__(
        self,
        hub: Callable[[], Coroutine[Any, Any, TicketHub]],
        *,
        on_timeout: Callable[[Sample], Reward],
    ) -> None:
        self._portal = Portal("zerowait-tickets")
        self._on_timeout = on_timeout
        self._changed = threading.Condition()
        self._waiting: dict[str, Sample] = {}
        self._rewards: dict[str, Reward] = {}
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._error: ZerowaitError | None = None
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
        """Tickets that are being redeemed."""
        return len(self._waiting)

    def begin(self, samples: Iterable[Sample], *, sizes: Mapping[str, int] | None = None) -> None:
        """Start to redeem tickets and return at once; those already started are skipped.

        Args:
            samples: deposited samples.
            sizes: by ticket, how many responses its group has, where some of its rollouts failed.
        """
        with self._changed:
            fresh = {
                ticket: sample
                for sample in samples
                if (ticket := ticket_of(sample)) not in self._waiting
                and ticket not in self._rewards
            }
            self._waiting |= fresh
        if fresh:
            self._portal.submit(lambda: self._fetch_all(fresh, sizes or {}))

    def known(self, samples: Iterable[Sample]) -> dict[str, Reward] | None:
        """The rewards by ticket if all of them have arrived, else None; never waits.

        Raises:
            JudgementError, HubLostError: a reward cannot be had, and training has to stop.
        """
        with self._changed:
            self._raise_error()
            tickets = [ticket_of(sample) for sample in samples]
            if any(ticket not in self._rewards for ticket in tickets):
                return None
            return {ticket: self._rewards[ticket] for ticket in tickets}

    def collect(self, samples: Iterable[Sample], *, within_s: float) -> dict[str, Reward]:
        """The rewards by ticket, waiting at most `within_s` seconds for them.

        A ticket that has no reward by then is given up and gets the reward of `on_timeout`.

        Raises:
            JudgementError, HubLostError: a reward cannot be had, and training has to stop.
        """
        wanted = {ticket_of(sample): sample for sample in samples}
        self.begin(wanted.values())
        give_up_at = time.monotonic() + within_s
        with self._changed:
            while not wanted.keys() <= self._rewards.keys():
                self._raise_error()
                left_s = give_up_at - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
            missing = {t: s for t, s in wanted.items() if t not in self._rewards}
            for ticket, sample in missing.items():
                self._rewards[ticket] = self._on_timeout(sample)
                self._waiting.pop(ticket, None)
            rewards = {ticket: self._rewards[ticket] for ticket in wanted}
        self.give_up(missing)
        return rewards

    def forget(self, samples: Iterable[Sample]) -> None:
        """Drop the rewards of these samples, and give up those that have not arrived."""
        unknown = {}
        with self._changed:
            for sample in samples:
                ticket = ticket_of(sample)
                if self._rewards.pop(ticket, None) is None:
                    self._waiting.pop(ticket, None)
                    unknown[ticket] = sample
        self.give_up(unknown)

    def give_up(self, tickets: Iterable[str]) -> None:
        """Tell the hub to stop judging these tickets; returns at once."""
        names = list(tickets)
        if names:
            self._portal.submit(lambda: self._cancel(names))

    def wait_for_change(self, within_s: float) -> None:
        """Return when a reward has arrived, or after `within_s` seconds."""
        with self._changed:
            self._changed.wait(within_s)

    def stats(self) -> Stats:
        """A frozen snapshot of the job's hub."""
        return self._portal.call(self._hub.stats)

    def close(self) -> None:
        """Stop fetching and end the thread. Idempotent."""
        self._portal.close()

    async def _fetch_all(self, samples: Mapping[str, Sample], sizes: Mapping[str, int]) -> None:
        async with asyncio.TaskGroup() as group:
            for ticket, sample in samples.items():
                fetching = self._fetch(ticket, sample, sizes.get(ticket))
                self._fetching[ticket] = group.create_task(fetching)

    async def _fetch(self, ticket: str, sample: Sample, size: int | None) -> None:
        result: Reward | ZerowaitError
        try:
            result = await self._hub.redeem(sample, of=size)
        except ZerowaitError as error:
            result = error
        except BaseException as error:
            self._settle(ticket, ClosedError(f"fetching rewards ended: {type(error).__name__}"))
            raise
        self._settle(ticket, result)

    async def _cancel(self, tickets: list[str]) -> None:
        for ticket in tickets:
            fetching = self._fetching.pop(ticket, None)
            if fetching is not None:
                fetching.cancel()
        await self._hub.give_up(tickets)

    def _settle(self, ticket: str, result: Reward | ZerowaitError) -> None:
        """Store a reward, or the first error, and wake the waiting thread."""
        if self._fetching.get(ticket) is not asyncio.current_task():
            return  # given up meanwhile, and perhaps begun again by another task
        del self._fetching[ticket]
        with self._changed:
            if self._waiting.pop(ticket, None) is None:
                return  # given up by the trainer's thread; the cancellation has not run yet
            if isinstance(result, Reward):
                self._rewards[ticket] = result
            elif self._error is None:
                self._error = result
            self._changed.notify_all()

    def _raise_error(self) -> None:
        """Raise the error of a ticket that cannot be redeemed, if there was one."""
        if self._error is not None:
            raise self._error
