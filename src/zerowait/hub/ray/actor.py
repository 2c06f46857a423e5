"""The Ray actor that holds a job's hub, or one shard of it; `HubActor` itself works without Ray."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from zerowait.cache import Shard
from zerowait.config import RewardConfig, load_config
from zerowait.engine import ForwardedRequest, JudgementCounts, JudgementResult, Partition, Stats
from zerowait.engine.garbage_collection import collect_rarely
from zerowait.engine.serving.servers import JudgeServers
from zerowait.errors import ClosedError, ConfigError, HubLostError
from zerowait.hub.job import JobHub
from zerowait.hub.ray.metrics import publish_for_ever
from zerowait.hub.ray.servers import RayServers
from zerowait.hub.rpc import (
    HEARTBEAT_S,
    CallResult,
    RpcAddress,
    RpcServer,
    Sessions,
    decode_message,
)
from zerowait.hub.slots import ShardLoad, ShardMember, SlotBalancer
from zerowait.hub.streaming import Streamed
from zerowait.hub.tickets import Deposit, Redemption
from zerowait.types import Abstain, FailureKind, Reward, Sample

_SERVERS_POLL_S: Final = 10.0
SESSION_TIMEOUT_S: Final = 300.0
"""The hub cancels the calls of a worker that was silent for so long."""

_NOT_HERE: Final = (
    "a hub under Ray leaves them to the trainer's own loggers, and Prometheus to Ray's agent"
)

HubRequest: TypeAlias = Sample | Deposit | Redemption | ForwardedRequest
"""The payload of a call: workers send samples and tickets, other shards forwarded requests."""
HubResult: TypeAlias = Streamed | Reward | tuple[JudgementResult, bool] | None

_log = logging.getLogger(__name__)


class Peer(ShardMember, Protocol):
    """A client of another shard."""

    async def request(self, payload: ForwardedRequest, /) -> tuple[JudgementResult, bool]:
        """See `zerowait.engine.Engine.answer`.

        Raises:
            HubLostError: the shard was gone for too long.
        """
        ...


class Peers:
    """Clients of the other shards, made when they are first needed.

    Args:
        client_of: makes the client of the shard at an index; does not connect yet.
        shard: this process's own.
    """

    def __init__(self, client_of: Callable[[int], Peer], shard: Shard) -> None:
        self._client_of = client_of
        self._clients: dict[int, Peer] = {}
        self.partition = Partition(shard, self._request)

    def __getitem__(self, index: int) -> Peer:
        """The client of the shard at `index`."""
        client = self._clients.get(index)
        if client is None:
            client = self._clients[index] = self._client_of(index)
        return client

    async def _request(self, index: int, request: ForwardedRequest) -> tuple[JudgementResult, bool]:
        """The judgement from the shard that owns it; abstains as unreachable if that is lost."""
        try:
            return await self[index].request(request)
        except HubLostError as error:
            return JudgementResult(
                outcome=Abstain(FailureKind.UNREACHABLE, str(error)), source="refused"
            ), False


class HubActor:
    """A hub with its RPC sessions; opens the hub on the first call, also after a restart.

    Construction does no work that can fail: Ray would tell callers only that the actor died,
    whereas a call can raise what is wrong with the configuration.

    Args:
        config: path of the reward configuration. record: the folder for the record, or None.
        index: of the shard that this actor holds; the first one divides the slots among all.
        client_of: makes the client of the shard at an index; needed with several shards.
        host: the address at which sessions may connect; None: by calls of these methods only.
        servers: starts the judges that are served for the job, and takes the record's folder; None:
            as child processes.
    """

    def __init__(
        self,
        config: str,
        record: str | None,
        index: int = 0,
        client_of: Callable[[int], Peer] | None = None,
        *,
        host: str | None = None,
        servers: Callable[[RewardConfig, Path | None], JudgeServers] | None = None,
    ) -> None:
        self._servers = servers
        self._config = config
        self._record = None if record is None else Path(record)
        self._index = index
        self._client_of = client_of
        self._sessions: Sessions[HubRequest, HubResult] = Sessions(
            self._handle, heartbeat_s=HEARTBEAT_S, session_timeout_s=SESSION_TIMEOUT_S
        )
        self._server = RpcServer(self._sessions, host)
        self._opening = asyncio.Lock()
        self._hub: JobHub | None = None
        self._shards = 1
        self._balancing: asyncio.Task[None] | None = None
        self._closed = False

    async def ready(self, config: str, shards: int | None = None, record: str | None = None) -> int:
        """The number of shards of the hub, which is open then.

        Args:
            config: path of the configuration that the caller wants.
            shards: the number that the caller knows, or None.
            record: the folder where the caller expects the record; None: anywhere or nowhere.

        Raises:
            ConfigError: the configuration is wrong, or this hub was made for another one, or for
                another record.
        """
        if config != self._config:
            raise ConfigError(
                f"this hub judges by {self._config}, not by {config}: give the second hub a name "
                "of its own"
            )
        if record is not None and self._record != Path(record):
            raise ConfigError(
                f"this hub keeps its record in {self._record or 'no folder'}, and would write "
                f"nothing to {record}: give the second hub a name of its own, or the same record"
            )
        await self._open()
        if shards not in (None, self._shards):
            raise ConfigError(
                f"{config}: hub.shards was {self._shards} when this hub was opened and is {shards} "
                "now: close the hub first"
            )
        return self._shards

    async def servers_ready(self) -> bool:
        """Whether the judges that are served for the job have answered; waits for 10 s at most.

        Raises:
            ConfigError: one cannot be started.
        """
        hub = await self._open()
        try:
            async with asyncio.timeout(_SERVERS_POLL_S):
                await hub.servers_ready()
        except TimeoutError:
            return False
        return True

    async def open_session(
        self, config: str, session: str, shards: int | None = None, previous: str = ""
    ) -> RpcAddress | None:
        """Open a session with the hub; returns the address to connect to, if there is one.

        Without an address the worker calls `submit` and `collect`.

        Args:
            config: path of the configuration that the caller wants.
            session: its secret name.
            shards: the number that the caller knows, or None.
            previous: the worker's session before this one; see `Sessions.open`.

        Raises:
            ConfigError: see `ready`.
        """
        await self.ready(config, shards)
        self._sessions.open(session, previous)
        return await self._server.address()

    async def give_up(self, tickets: list[str]) -> None:
        """See `JobHub.give_up`."""
        if self._hub is not None:
            self._hub.give_up(tickets)

    async def submit(self, session: str, message: bytes) -> bool:
        """See `Sessions.submit`; `message` is made by `zerowait.hub.rpc.encode_message`."""
        return self._sessions.submit(session, *decode_message(message))

    async def collect(self, session: str) -> list[CallResult[HubResult]] | None:
        """See `Sessions.collect`."""
        return await self._sessions.collect(session)

    async def close_session(self, session: str) -> None:
        """See `Sessions.close`."""
        self._sessions.close(session)

    async def stats(self) -> Stats:
        """See `JobHub.stats`."""
        return await (await self._open()).stats()

    async def current_load(self, others: JudgementCounts) -> ShardLoad:
        """See `JobHub.current_load`."""
        return await (await self._open()).current_load(others)

    async def set_slots(self, slots: int) -> ShardLoad:
        """See `JobHub.set_slots`."""
        return await (await self._open()).set_slots(slots)

    async def aclose(self, drain_s: float) -> None:
        """Close the hub for all its users; see `JobHub.aclose`."""
        self._closed = True
        self._server.close()
        async with self._opening:
            balancing, self._balancing = self._balancing, None
            if balancing is not None:
                balancing.cancel()
                await asyncio.wait({balancing})
            hub, self._hub = self._hub, None
            if hub is not None:
                await hub.aclose(drain_s=drain_s)

    async def _handle(self, request: HubRequest) -> HubResult:
        hub = self._hub or await self._open()
        match request:
            case Sample():
                return await hub.reward(request)
            case Deposit(sample=sample):
                hub.deposit([sample])
                return None
            case Redemption(sample=sample, of=of):
                return await hub.redeem(sample, of=of)
            case _:
                return await hub.answer(request)

    async def _open(self) -> JobHub:
        if self._hub is not None:
            return self._hub
        async with self._opening:
            if self._closed:
                raise ClosedError("the hub was closed")
            if self._hub is None:
                self._hub = await self._new_hub(load_config(self._config))
            return self._hub

    async def _new_hub(self, config: RewardConfig) -> JobHub:
        others = config.log_to.without("otel")
        if others.wanted:
            _log.info("log_to %s: %s", ", ".join(others.wanted), _NOT_HERE)
            config = msgspec.structs.replace(config, log_to=config.log_to.without(*others.wanted))
        self._shards = count = config.hub.shards
        new_servers, record = self._servers, self._record
        servers = None if new_servers is None else lambda given: new_servers(given, record)
        if count == 1 or self._client_of is None:
            return await JobHub(config, record=record, servers=servers).__aenter__()
        peers = Peers(self._client_of, Shard(self._index, count))
        if self._index:
            hub = JobHub(config, record=record, partition=peers.partition, servers=servers)
            return await hub.__aenter__()
        balancer = SlotBalancer(config.traffic.slots, count)
        hub = JobHub(
            config,
            record=record,
            partition=peers.partition,
            other_shards=balancer.other_shards,
            servers=servers,
        )
        await hub.__aenter__()
        members = [hub, *(peers[index] for index in range(1, count))]
        self._balancing = asyncio.create_task(balancer.run(members, check=hub.check_alarms))
        self._balancing.add_done_callback(_log_failure)
        return hub


class RayHubActor(HubActor):
    """`HubActor` as Ray runs it, alone in its process."""

    def __init__(self, *arguments: Any) -> None:
        import ray

        collect_rarely()
        # connections are not encrypted, so there are none where Ray's own messages are
        uses_tls = os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")
        host = None if uses_tls else ray.util.get_node_ip_address()
        super().__init__(*arguments, host=host, servers=RayServers)
        self._publishing: asyncio.Task[None] | None = None

    async def aclose(self, drain_s: float) -> None:
        """See `HubActor.aclose`."""
        publishing, self._publishing = self._publishing, None
        if publishing is not None:
            publishing.cancel()
            await asyncio.wait({publishing})
        await super().aclose(drain_s)

    async def _new_hub(self, config: RewardConfig) -> JobHub:
        hub = await super()._new_hub(config)
        self._publishing = asyncio.create_task(publish_for_ever(hub.stats, self._index))
        return hub


def _log_failure(balancing: asyncio.Task[None]) -> None:
    if not balancing.cancelled() and balancing.exception() is not None:
        _log.error("the slots are no longer balanced among shards", exc_info=balancing.exception())
