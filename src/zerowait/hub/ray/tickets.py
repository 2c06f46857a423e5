"""Tickets on the job's hub: handed in by one Ray worker, fetched by another."""

from __future__ import annotations

from collections.abc import Iterable

from zerowait.hub.ray import RayHub
from zerowait.hub.tickets import Deposit, Redemption
from zerowait.types import Reward, Sample, check_sample


class RayTickets(RayHub):
    """A handle on the job's hub whose rewards are handed in here and fetched elsewhere.

    It takes what `RayHub` takes, and finds the same hub by the same name.
    """

    async def deposit(self, sample: Sample) -> None:
        """Hand in a sample, which needs an id; returns when the hub has it.

        Raises:
            ConfigError: the hub's configuration is wrong.
            HubLostError: the hub was gone or silent for longer than `patience_s`.
        """
        check_sample(sample, "deposit")
        await self._ask(sample, Deposit(sample))

    async def redeem(self, sample: Sample, *, of: int | None = None) -> Reward:
        """The reward of a sample that was handed in, as it is; see `JobHub.redeem`.

        A hub that was started anew in between, and knows nothing of it, judges it now.

        Raises:
            JudgementError, DataError, ConfigError, ClosedError: as the hub raised it.
            HubLostError: the hub was gone or silent for longer than `patience_s`.
        """
        check_sample(sample, "redeem")
        reward = await self._ask(sample, Redemption(sample, of))
        assert isinstance(reward, Reward)  # noqa: S101 - what comes of a redemption
        return reward

    async def give_up(self, tickets: Iterable[str]) -> None:
        """Stop judging samples that nobody will redeem; see `JobHub.give_up`."""
        names = list(tickets)
        for link in await self._all():
            await link.call("give_up", names)
