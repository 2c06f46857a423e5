"""The body of the Ray actor that holds a job's hub, or one shard of it; it does not know Ray."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from zerowait.cache import Shard
from zerowait.config import RewardConfig, load_config
from zerowait.engine import ForwardedRequest, JudgementResult, Partition, Stats
from zerowait.errors import ClosedError, ConfigError, HubLostError
from zerowait.hub.job import JobHub
from zerowait.hub.rpc.codec import decoded_parts
from zerowait.hub.rpc.connection import RpcAddress
from zerowait.hub.rpc.server import RpcServer
from zerowait.hub.rpc.sessions import HEARTBEAT_S, CallResult, Sessions
from zerowait.hub.slots import ShardLoad, ShardMember, SlotBalancer
from zerowait.hub.streaming import Streamed
from zerowait.hub.tickets import Deposit, Redemption
from zerowait.types import Abstain, FailureKind, Reward, Sample


class Peer(ShardMember, Protocol):
    """Another shard."""

    async def ask(self, item: ForwardedRequest, /) -> tuple[JudgementResult, bool]:
        """See `zerowait.engine.Engine.answer`.

        Raises:
            HubLostError: it was gone for too long.
        """
        ...


class Peers:
    """Links to the other shards, made when they are first needed.

    Args:
        dial: the link to the shard at an index; reaches nobody yet.
        shard: our own place.
    """

    def __init__(self, dial: Callable[[int], Peer], shard: Shard) -> None:
        self._dial = dial
        self._links: dict[int, Peer] = {}
        self.partition = Partition(shard, self._ask)

    def __getitem__(self, index: int) -> Peer:
        """The link to the shard at `index`."""
        link = self._links.get(index)
        if link is None:
            link = self._links[index] = self._dial(index)
        return link

    async def _ask(self, index: int, ask: ForwardedRequest) -> tuple[JudgementResult, bool]:
        """A judgement by its owner; one that is lost for good abstains, as an endpoint would."""
        try:
            return await self[index].ask(ask)
        except HubLostError as error:
            return JudgementResult(
                outcome=Abstain(FailureKind.UNREACHABLE, str(error)), source="refused"
            ), False


SILENCE_S: Final = 300.0
"""A worker that was not heard of for so long is gone, and what it asked for is given up."""

Item: TypeAlias = Sample | Deposit | Redemption | ForwardedRequest
SessionOutcome: TypeAlias = Streamed | Reward | tuple[JudgementResult, bool] | None
"""What workers hand in and get, and what the other shards do."""

_log = logging.getLogger(__name__)


class HubActor:
    """Opens the hub when it is first needed, also after a restart.

    Its construction cannot fail: an actor that dies in there tells its callers only that it died,
    while the first call can tell each of them what is wrong with the configuration.

    Args:
        config: path of the reward configuration. record: the folder for the record, or None.
        index: which of the hub's shards it is; the first one divides the limits among them.
        dial: the link to the shard at an index, where the configuration asks for several.
        host: the address at which sessions may connect; None: they have calls alone.
    """

    def __init__(
        self,
        config: str,
        record: str | None,
        index: int = 0,
        dial: Callable[[int], Peer] | None = None,
        *,
        host: str | None = None,
    ) -> None:
        self._config = config
        self._record = None if record is None else Path(record)
        self._index = index
        self._dial = dial
        self._sessions: Sessions[Item, SessionOutcome] = Sessions(
            self._work, beat_s=HEARTBEAT_S, silence_s=SILENCE_S
        )
        self._entrance = RpcServer(self._sessions, host)
        self._opening = asyncio.Lock()
        self._hub: JobHub | None = None
        self._shards = 1
        self._balancing: asyncio.Task[None] | None = None
        self._closed = False

    async def ready(self, config: str, shards: int | None = None) -> int:
        """Open the hub if it is not; how many shards it has.

        Args:
            config: what the caller wants judged by.
            shards: how many the caller believes there are.

        Raises:
            ConfigError: the configuration is wrong, or this hub was made for another one.
        """
        if config != self._config:
            raise ConfigError(
                f"this hub judges by {self._config}, not by {config}: give the second hub a name "
                "of its own"
            )
        await self._open()
        if shards not in (None, self._shards):
            raise ConfigError(
                f"{config}: hub.shards was {self._shards} when this hub was opened and is {shards} "
                "now: close the hub first"
            )
        return self._shards

    async def join(
        self, config: str, session: str, shards: int | None = None, after: str = ""
    ) -> RpcAddress | None:
        """Begin a session with an open hub; see `Sessions.join`, and `ready` for what is raised.

        Returns:
            Where the session may connect, instead of `submit` and `collect`.
        """
        await self.ready(config, shards)
        self._sessions.join(session, after)
        return await self._entrance.door()

    async def give_up(self, tickets: list[str]) -> None:
        """See `JobHub.give_up`."""
        if self._hub is not None:
            self._hub.give_up(tickets)

    async def submit(self, session: str, parcel: bytes) -> bool:
        """See `Sessions.submit`; `packed` makes the parcel."""
        return self._sessions.submit(session, *decoded_parts(parcel))

    async def collect(self, session: str) -> list[CallResult[SessionOutcome]] | None:
        """See `Sessions.collect`."""
        return await self._sessions.collect(session)

    async def leave(self, session: str) -> None:
        """See `Sessions.leave`."""
        self._sessions.leave(session)

    async def stats(self) -> Stats:
        """See `JobHub.stats`."""
        return await (await self._open()).stats()

    async def report(self) -> ShardLoad:
        """See `JobHub.report`."""
        return await (await self._open()).report()

    async def take(self, slots: int) -> ShardLoad:
        """See `JobHub.take`."""
        return await (await self._open()).take(slots)

    async def aclose(self, drain_s: float) -> None:
        """Close the hub for everybody; see `JobHub.aclose`."""
        self._closed = True
        self._entrance.close()
        async with self._opening:
            balancing, self._balancing = self._balancing, None
            if balancing is not None:
                balancing.cancel()
                await asyncio.wait({balancing})
            hub, self._hub = self._hub, None
            if hub is not None:
                await hub.aclose(drain_s=drain_s)

    async def _work(self, item: Item) -> SessionOutcome:
        hub = self._hub or await self._open()
        match item:
            case Sample():
                return await hub.reward(item)
            case Deposit(sample=sample):
                hub.deposit([sample])
                return None
            case Redemption(sample=sample, of=of):
                return await hub.redeem(sample, of=of)
            case _:
                return await hub.answer(item)

    async def _open(self) -> JobHub:
        if self._hub is not None:
            return self._hub
        async with self._opening:
            if self._closed:
                raise ClosedError("the hub was closed")
            if self._hub is None:
                self._hub = await self._opened(load_config(self._config))
            return self._hub

    async def _opened(self, config: RewardConfig) -> JobHub:
        self._shards = count = config.hub.shards
        if count == 1 or self._dial is None:
            return await JobHub(config, record=self._record).__aenter__()
        peers = Peers(self._dial, Shard(self._index, count))
        if self._index:
            return await JobHub(config, record=self._record, partition=peers.partition).__aenter__()
        balance = SlotBalancer(config.traffic.slots, count)
        hub = JobHub(config, record=self._record, partition=peers.partition, others=balance.others)
        await hub.__aenter__()
        members = [hub, *(peers[index] for index in range(1, count))]
        self._balancing = asyncio.create_task(balance.run(members, look=hub.look))
        self._balancing.add_done_callback(_balances_no_more)
        return hub


def _balances_no_more(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.error("the limits are not divided anew any more", exc_info=task.exception())
