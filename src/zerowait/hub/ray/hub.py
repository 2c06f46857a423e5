"""A handle on the hub as a named Ray actor, or several: one per job, found by every worker."""

from __future__ import annotations

import asyncio
import itertools
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias
from weakref import WeakKeyDictionary

from zerowait.config.checks import seconds
from zerowait.engine import Stats
from zerowait.errors import ClosedError, ConfigError, ZerowaitError
from zerowait.hub.ray.actor import HubRequest, HubResult
from zerowait.hub.ray.client import ActorAddress, ActorClient, absolute_path
from zerowait.hub.shard_stats import merged_stats
from zerowait.hub.streaming import Streamed
from zerowait.hub.tickets import Deposit, Redemption
from zerowait.types import Reward, Sample, check_sample

_Client: TypeAlias = ActorClient[HubRequest, HubResult]


class RayHub:
    """A handle on the job's hub from inside any of its Ray workers.

    When the hub's process dies, Ray restarts it; when it died with the worker that had created it,
    the next caller creates another. Callers do not notice: their pending samples are submitted
    again, and what was judged and committed before comes from the cache.

    With ``hub: {shards: n}`` in the configuration the hub is n actors. The rows of a group go to
    one of them, which requests each judgement from the shard that owns it.

    Args:
        config: path of the reward configuration, readable where the actors live: on the
            cluster's node with the resource ``zerowait_hub``, else on its head node, so that the
            cache stays in one place, and on another one when that node dies.
        record: the folder for the record, or None.
        name: the actor's name; two hubs of one job need two names.
        namespace: of the name; jobs that give the same one share a hub. None: the job's own.
        detached: the hub outlives the job that created it, until `aclose`.
        patience_s: how many seconds the hub may be gone or silent before callers get a
            `HubLostError`; above 0.

    Raises:
        ConfigError: `config` is no path, `name` no text, or `patience_s` no number above 0.
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
        if not (isinstance(name, str) and name):
            raise ConfigError(
                f"the name of a RayHub must be a text that is not empty, not {name!r}"
            )
        self._address = ActorAddress(
            config=absolute_path(str(config)),
            record=None if record is None else absolute_path(record),
            name=name,
            namespace=namespace,
            detached=detached,
            patience_s=seconds("patience_s", patience_s),
        )
        self._first: _Client = ActorClient(self._address, 0)
        self._first.connect()
        self._shards: Sequence[_Client] = ()
        self._finding_shards: WeakKeyDictionary[
            asyncio.AbstractEventLoop, asyncio.Task[Sequence[_Client]]
        ] = WeakKeyDictionary()
        self._round_robin = itertools.count()
        self._is_closed = False

    async def ready(self) -> None:
        """Wait until the hub is open, and the judges that are served for the job have answered.

        Raises:
            ConfigError: its configuration is wrong, or configuration or record are others than this
                handle's, or a judge's server does not start.
            HubLostError: it was gone for longer than `patience_s`.
        """
        shards = await self._all_shards()
        for shard in shards:
            await shard.call("ready", self._address.config, shard.shards)
        while not await shards[0].call("servers_ready"):
            pass

    async def reward(self, sample: Sample) -> Streamed:
        """See `JobHub.reward`.

        Raises:
            JudgementError, DataError, ConfigError: as the hub raised it.
            ClosedError: the hub is closed, or this handle is.
            HubLostError: the hub was gone or silent for longer than `patience_s`.
        """
        check_sample(sample, "RayHub.reward")
        streamed = await self._request(sample, sample)
        assert isinstance(streamed, Streamed)  # noqa: S101 - the result of a sample
        return streamed

    async def stats(self) -> Stats:
        """A frozen snapshot of the whole job; what a process counted before it died is lost.

        See `zerowait.hub.shard_stats.merged_stats` for how several shards are added up.
        """
        return merged_stats([await shard.call("stats") for shard in await self._all_shards()])

    async def aclose(self, *, drain_s: float = 0.0) -> None:
        """End the hub for all its users; a detached one ends no other way. Idempotent.

        Args:
            drain_s: seconds in which requests already sent may still bring their answer into the
                cache.
        """
        if self._is_closed:
            return
        try:
            shards = await self._all_shards()
        except ConfigError:  # it never opened
            shards = [self._first]
        self._is_closed, self._shards = True, ()
        patience_s = drain_s + self._address.patience_s
        try:
            async with asyncio.TaskGroup() as tasks:
                for shard in shards:
                    tasks.create_task(shard.call("aclose", drain_s, patience_s=patience_s))
        except* ZerowaitError as errors:
            raise errors.exceptions[0] from None
        for shard in shards:
            shard.kill()

    async def _request(self, sample: Sample, request: HubRequest) -> HubResult:
        """The hub's result for `request`, which is about `sample`.

        The rows of a group go to one shard; rows without a group or id are dealt out in turn.
        """
        shards = self._shards or await self._all_shards()
        name = sample.id if sample.group is None else sample.group
        if name is None:
            number = next(self._round_robin)
        else:
            number = zlib.crc32(f"{sample.split}/{name}".encode("utf-8", "surrogatepass"))
        return await shards[number % len(shards)].request(request)

    async def _all_shards(self) -> Sequence[_Client]:
        """A client of each of the hub's actors; the first one knows how many there are.

        Raises:
            ConfigError, HubLostError: as the first one does.
            ClosedError: this handle was closed; its calls must not create the hub anew.
        """
        if self._is_closed:
            raise ClosedError(f"this handle on the hub {self._address.name!r} is closed")
        if self._shards:
            return self._shards
        loop = asyncio.get_running_loop()
        finding = self._finding_shards.get(loop)
        if finding is None or finding.done():
            # one task for all callers, and shielded: cancelling one caller must not cancel others
            finding = self._finding_shards[loop] = loop.create_task(self._find_shards())
            finding.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(finding)

    async def _find_shards(self) -> Sequence[_Client]:
        address = self._address
        count = await self._first.call("ready", address.config, None, address.record)
        rest = [ActorClient[HubRequest, HubResult](self._address, n) for n in range(1, count)]
        shards: list[_Client] = [self._first, *rest]
        for shard in shards:
            shard.shards = count
        for shard in rest:
            await asyncio.to_thread(shard.connect)
        self._shards = shards
        return shards


class RayTickets(RayHub):
    """A handle on the job's hub that deposits samples in one worker and redeems them in another.

    It takes what `RayHub` takes, and finds the same hub by the same name.
    """

    async def deposit(self, sample: Sample) -> None:
        """Submit a sample, which needs an id; returns when the hub has it.

        Raises:
            ConfigError: the hub's configuration is wrong.
            HubLostError: the hub was gone or silent for longer than `patience_s`.
        """
        check_sample(sample, "deposit")
        await self._request(sample, Deposit(sample))

    async def redeem(self, sample: Sample, *, of: int | None = None) -> Reward:
        """The reward of a deposited sample, as it was judged; see `JobHub.redeem`.

        A hub that was restarted meanwhile has lost the deposit and judges the sample now.

        Raises:
            JudgementError, DataError, ConfigError, ClosedError: as the hub raised it.
            HubLostError: the hub was gone or silent for longer than `patience_s`.
        """
        check_sample(sample, "redeem")
        reward = await self._request(sample, Redemption(sample, of))
        assert isinstance(reward, Reward)  # noqa: S101 - the result of a redemption
        return reward

    async def give_up(self, tickets: Iterable[str]) -> None:
        """Stop judging samples that will not be redeemed; see `JobHub.give_up`."""
        names = list(tickets)
        for shard in await self._all_shards():
            await shard.call("give_up", names)
