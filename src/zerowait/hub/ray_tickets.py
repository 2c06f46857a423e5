"""Tickets on the job's hub: handed in by one Ray worker, fetched by another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final
from weakref import WeakKeyDictionary

from zerowait.errors import HubLostError, ZerowaitError
from zerowait.hub.ray import RayHub
from zerowait.types import Reward, Sample

_LARGEST_BATCH: Final = 256


class RayTickets(RayHub):
    """A handle on the job's hub whose rewards are handed in here and fetched elsewhere.

    It takes what `RayHub` takes, and finds the same hub by the same name.
    """

    _tickets = True

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._outboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Outbox] = WeakKeyDictionary()

    async def deposit(self, sample: Sample) -> None:
        """Hand in a sample, which needs an id; returns when the hub has it.

        Raises:
            ConfigError: the hub's configuration is wrong.
            HubLostError: the hub was gone or silent for longer than `patience_s`.
        """
        loop = asyncio.get_running_loop()
        outbox = self._outboxes.setdefault(loop, _Outbox())
        taken: asyncio.Future[None] = loop.create_future()
        outbox.waiting.append((sample, taken))
        if outbox.courier is None or outbox.courier.done():
            outbox.courier = asyncio.create_task(self._send(outbox))
        await taken

    async def redeem(self, sample: Sample) -> Reward:
        """The reward of a sample that was handed in, as it is; see `JobHub.redeem`.

        A hub that was started anew in between, and knows nothing of it, judges it now.

        Raises:
            JudgementError, DataError, ConfigError, ClosedError: as the hub raised it.
            HubLostError: the hub was gone or silent for longer than `patience_s`.
        """
        reward = await self._handed_in(sample)
        assert isinstance(reward, Reward)  # noqa: S101 - what a session of tickets brings
        return reward

    async def give_up(self, tickets: Iterable[str]) -> None:
        """Stop judging samples that nobody will redeem; see `JobHub.give_up`."""
        await self._ask("give_up", list(tickets))

    async def _send(self, outbox: _Outbox) -> None:
        """Hands in what gathered while the last call was under way, until there is no more."""
        await asyncio.sleep(0)  # the rows of one moment travel together
        while outbox.waiting:
            batch = outbox.waiting[:_LARGEST_BATCH]
            del outbox.waiting[: len(batch)]
            failed: ZerowaitError | None = None
            try:
                await self._ask("deposit", self._config, [sample for sample, _ in batch])
            except ZerowaitError as error:
                failed = error
            except BaseException as error:
                _tell(batch, HubLostError(f"the handle on the hub broke: {type(error).__name__}"))
                raise
            _tell(batch, failed)


class _Outbox:
    """Samples of one event loop that the hub does not have yet, and who hands them in."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Sample, asyncio.Future[None]]] = []
        self.courier: asyncio.Task[None] | None = None


def _tell(batch: list[tuple[Sample, asyncio.Future[None]]], failed: ZerowaitError | None) -> None:
    for _, taken in batch:
        if taken.done():
            continue
        if failed is None:
            taken.set_result(None)
        else:
            taken.set_exception(failed)
