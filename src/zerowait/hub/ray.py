"""The hub as a named Ray actor: created once per job, found by every worker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from zerowait.engine import Stats
from zerowait.hub.job import JobHub
from zerowait.hub.streaming import Streamed
from zerowait.types import Sample

_WAITING_CALLS = 100_000


class HubActor:
    """The actor's body; its configuration is read once, where it lives."""

    def __init__(self, config: str, record: str | None) -> None:
        self._hub = JobHub(config, record=None if record is None else Path(record))
        self._opening = asyncio.Lock()
        self._open = False

    async def ready(self) -> None:
        """Open the hub if it is not; raises what is wrong with its configuration."""
        async with self._opening:
            if not self._open:
                await self._hub.__aenter__()
                self._open = True

    async def reward(self, sample: Sample) -> Streamed:
        """See `JobHub.reward`."""
        if not self._open:
            await self.ready()
        return await self._hub.reward(sample)

    async def stats(self) -> Stats:
        """See `JobHub.stats`."""
        return await self._hub.stats()


class RayHub:
    """A handle on the job's hub from inside any of its Ray workers.

    Args:
        config: path of the reward configuration, readable where the actor lives.
        record: the folder for the record, or None.
        name: the actor's name; two hubs of one job need two names.
    """

    def __init__(self, config: str, *, record: str | None, name: str = "zerowait-hub") -> None:
        import ray

        actor: Any = ray.remote(HubActor)
        self._actor = actor.options(
            name=name,
            get_if_exists=True,
            num_cpus=0,
            max_concurrency=_WAITING_CALLS,
            max_restarts=-1,
        ).remote(config, record)

    async def ready(self) -> None:
        """Wait until the hub is open; raises what is wrong with its configuration."""
        await self._actor.ready.remote()

    async def reward(self, sample: Sample) -> Streamed:
        """See `JobHub.reward`."""
        streamed: Streamed = await self._actor.reward.remote(sample)
        return streamed

    async def stats(self) -> Stats:
        """See `JobHub.stats`."""
        stats: Stats = await self._actor.stats.remote()
        return stats
