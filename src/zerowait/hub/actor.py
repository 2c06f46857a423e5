"""The body of the Ray actor that holds a job's hub; nothing in it knows Ray."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from zerowait.engine import Stats
from zerowait.errors import ClosedError, ConfigError
from zerowait.hub.job import JobHub
from zerowait.hub.sessions import Result, Sessions
from zerowait.hub.streaming import Streamed
from zerowait.types import Reward, Sample

BEAT_S: Final = 10.0
SILENCE_S: Final = 300.0
"""A worker that was not heard of for so long is gone, and what it asked for is given up."""


class HubActor:
    """Opens the hub when it is first needed, also after a restart.

    Its construction cannot fail: an actor that dies in there tells its callers only that it died,
    while the first call can tell each of them what is wrong with the configuration.

    Args:
        config: path of the reward configuration. record: the folder for the record, or None.
    """

    def __init__(self, config: str, record: str | None) -> None:
        self._config = config
        self._record = None if record is None else Path(record)
        self._sessions = Sessions(self._reward, beat_s=BEAT_S, silence_s=SILENCE_S)
        self._opening = asyncio.Lock()
        self._hub: JobHub | None = None
        self._closed = False

    async def ready(self, config: str) -> None:
        """Open the hub if it is not.

        Raises:
            ConfigError: the configuration is wrong, or this hub was made for another one.
        """
        if config != self._config:
            raise ConfigError(
                f"this hub judges by {self._config}, not by {config}: give the second hub a name "
                "of its own"
            )
        await self._open()

    async def join(self, config: str, session: str, *, tickets: bool = False) -> None:
        """Begin a session with an open hub; raises as `ready` does.

        With `tickets`, what is handed in are tickets, and what comes back are their rewards.
        """
        await self.ready(config)
        self._sessions.join(session, self._redeem if tickets else self._reward)

    async def deposit(self, config: str, samples: list[Sample]) -> None:
        """See `JobHub.deposit`; raises as `ready` does."""
        await self.ready(config)
        (self._hub or await self._open()).deposit(samples)

    async def give_up(self, tickets: list[str]) -> None:
        """See `JobHub.give_up`."""
        if self._hub is not None:
            self._hub.give_up(tickets)

    async def submit(
        self, session: str, samples: list[tuple[int, Sample]], given_up: list[int]
    ) -> bool:
        """See `Sessions.submit`."""
        return self._sessions.submit(session, samples, given_up)

    async def collect(self, session: str) -> list[Result] | None:
        """See `Sessions.collect`."""
        return await self._sessions.collect(session)

    async def leave(self, session: str) -> None:
        """See `Sessions.leave`."""
        self._sessions.leave(session)

    async def stats(self) -> Stats:
        """See `JobHub.stats`."""
        hub = self._hub or await self._open()
        return await hub.stats()

    async def aclose(self, drain_s: float) -> None:
        """Close the hub for everybody; see `JobHub.aclose`."""
        self._closed = True
        async with self._opening:
            hub, self._hub = self._hub, None
            if hub is not None:
                await hub.aclose(drain_s=drain_s)

    async def _reward(self, sample: Sample) -> Streamed:
        hub = self._hub or await self._open()
        return await hub.reward(sample)

    async def _redeem(self, sample: Sample) -> Reward:
        hub = self._hub or await self._open()
        return await hub.redeem(sample)

    async def _open(self) -> JobHub:
        async with self._opening:
            if self._closed:
                raise ClosedError("the hub was closed")
            if self._hub is None:
                hub = JobHub(self._config, record=self._record)
                await hub.__aenter__()
                self._hub = hub
            return self._hub
