"""The hub as a named Ray actor, or several: created once per job, found by every worker."""

from __future__ import annotations

import asyncio
import itertools
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias
from weakref import WeakKeyDictionary

from zerowait.config.checks import seconds
from zerowait.engine import Stats
from zerowait.errors import ConfigError, ZerowaitError
from zerowait.hub.ray.actor import Item, SessionOutcome
from zerowait.hub.ray.client import ActorAddress, ActorClient, absolute
from zerowait.hub.shard_stats import merged_stats
from zerowait.hub.streaming import Streamed
from zerowait.types import Sample, check_sample

_Link: TypeAlias = ActorClient[Item, SessionOutcome]


class RayHub:
    """A handle on the job's hub from inside any of its Ray workers.

    When the hub's process dies, Ray starts it again, and when it died with the worker that had
    created it, the next caller creates it anew. Callers notice neither: what they wait for is
    handed in again, and whatever was judged and committed before comes from the cache.

    With ``hub: {shards: n}`` in the configuration the hub is n actors; the rows of a group go to
    one of them, which asks the owner of each judgement for it.

    Args:
        config: path of the reward configuration, readable where the actors live: on the cluster's
            head node while there is room, so that the cache stays in one place.
        record: the folder for the record, or None.
        name: the actor's name; two hubs of one job need two names.
        namespace: of the name; jobs that give the same one share a hub. None: the job's own.
        detached: the hub outlives the job that created it, until `aclose`.
        patience_s: how long the hub may be gone or silent before callers are told.

    Raises:
        ConfigError: `config` is no path, or `patience_s` no number above 0.
    """

    def __init__(
        self,
        config: str | Path,
        *,
        record: str | None,
        name: str = "zerowait-hub",
        namespace: str | None = None,
        detached: bool = False,
        patience_s: float = 120.0,
    ) -> None:
        if not isinstance(config, str | Path):
            raise ConfigError(
                f"RayHub takes the path of a reward.yaml, not a {type(config).__name__}: its "
                "actors read the file where they live"
            )
        self._site = ActorAddress(
            config=absolute(str(config)),
            record=None if record is None else absolute(record),
            name=name,
            namespace=namespace,
            detached=detached,
            patience_s=seconds("patience_s", patience_s),
        )
        self._first: _Link = ActorClient(self._site, 0)
        self._first.connect()
        self._links: Sequence[_Link] = ()
        self._counting: WeakKeyDictionary[
            asyncio.AbstractEventLoop, asyncio.Task[Sequence[_Link]]
        ] = WeakKeyDictionary()
        self._turns = itertools.count()

    async def ready(self) -> None:
        """Wait until the hub is open.

        Raises:
            ConfigError: its configuration is wrong, or another than this handle's.
            HubLostError: it was gone for longer than `patience_s`.
        """
        for link in await self._all():
            await link.call("ready", self._site.config, link.shards)

    async def reward(self, sample: Sample) -> Streamed:
        """See `JobHub.reward`.

        Raises:
            JudgementError, DataError, ConfigError, ClosedError: as the hub raised it.
            HubLostError: the hub was gone or silent for longer than `patience_s`.
        """
        check_sample(sample, "RayHub.reward")
        streamed = await self._ask(sample, sample)
        assert isinstance(streamed, Streamed)  # noqa: S101 - what comes of a sample
        return streamed

    async def stats(self) -> Stats:
        """A frozen snapshot of the whole job; what a process counted before it died is lost.

        See `zerowait.hub.shard_stats.merged` for what it says about several shards.
        """
        return merged_stats([await link.call("stats") for link in await self._all()])

    async def aclose(self, *, drain_s: float = 0.0) -> None:
        """End the hub for everybody who uses it; a detached one ends no other way.

        Args:
            drain_s: how long requests already sent may still bring their answer into the cache.
        """
        try:
            links = await self._all()
        except ConfigError:  # it never opened
            links = [self._first]
        patience_s = drain_s + self._site.patience_s
        try:
            async with asyncio.TaskGroup() as tasks:
                for link in links:
                    tasks.create_task(link.call("aclose", drain_s, patience_s=patience_s))
        except* ZerowaitError as errors:
            raise errors.exceptions[0] from None
        for link in links:
            link.kill()

    async def _ask(self, sample: Sample, item: Item) -> SessionOutcome:
        """What comes of `item`, which is about `sample`."""
        links = self._links or await self._all()
        return await links[self._turn(sample) % len(links)].ask(item)

    def _turn(self, sample: Sample) -> int:
        """Where a row goes, modulo the shards: the rows of a group together, others in turn."""
        name = sample.id if sample.group is None else sample.group
        if name is None:
            return next(self._turns)
        return zlib.crc32(f"{sample.split}/{name}".encode("utf-8", "surrogatepass"))

    async def _all(self) -> Sequence[_Link]:
        """A link to each of the hub's actors; how many there are, the first one knows.

        Raises:
            ConfigError, HubLostError: as the first one does.
        """
        if self._links:
            return self._links
        loop = asyncio.get_running_loop()
        counting = self._counting.get(loop)
        if counting is None or counting.done():
            # one question, however many are about to wait; a caller that is cancelled leaves alone
            counting = self._counting[loop] = loop.create_task(self._counted())
            counting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(counting)

    async def _counted(self) -> Sequence[_Link]:
        shards = await self._first.call("ready", self._site.config)
        links: list[_Link] = [self._first, *(ActorClient(self._site, n) for n in range(1, shards))]
        for link in links:
            link.shards = shards
        for link in links[1:]:
            await asyncio.to_thread(link.connect)
        self._links = links
        return links
