"""RPC client of one Ray actor of a hub: sends calls in batches, through the actor's restarts."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from zerowait.engine import ForwardedRequest, JudgementCounts, JudgementResult
from zerowait.errors import HubLostError, ZerowaitError
from zerowait.hub.ray.actor import RayHubActor
from zerowait.hub.rpc import (
    HEARTBEAT_S,
    SECRET_CHARS,
    CallResult,
    PendingCalls,
    Pickler,
    RpcAddress,
    RpcConnection,
    encode_message,
    open_connection,
    pump,
)
from zerowait.hub.slots import GoneError, ShardLoad

T = TypeVar("T")
R = TypeVar("R")
AwaitAnswer: TypeAlias = Callable[..., Awaitable[Any]]
"""Awaits the reference that an actor's method returned; see `ActorClient._answer`."""

HUB_RESOURCE: Final = "zerowait_hub"
"""Custom resource of the Ray node on which the hub is placed."""
_MAX_CONCURRENT_CALLS: Final = 100_000
_RECONNECT_PAUSE_S: Final = (0.1, 0.5)
_SILENCE_S: Final = 2.4 * HEARTBEAT_S
"""A connection over which the hub sends nothing for so long is given up, but not yet the hub."""
_AVOIDED_S: Final = 300.0
"""After so long a connection is tried again: its port may have been opened in the firewall."""

_log = logging.getLogger(__name__)


class ActorAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Names and settings of a hub's actors, with which any process can find or create them.

    Args:
        config: path of the reward configuration. record: the folder for the record, or None.
        name: of the first actor. namespace: of the names; None: the job's own.
        detached: the actors outlive the job that created them.
        patience_s: how long an actor may be gone or silent before callers get a `HubLostError`.
    """

    config: str
    record: str | None
    name: str
    namespace: str | None
    detached: bool
    patience_s: float

    def actor_name(self, index: int) -> str:
        """The name of the actor that holds the shard at `index`."""
        return self.name if index == 0 else f"{self.name}-{index}"

    def find_actor(self, index: int) -> Any:
        """The running actor that holds the shard at `index`.

        Raises:
            GoneError: there is none.
        """
        import ray

        try:
            return ray.get_actor(self.actor_name(index), namespace=self.namespace)
        except ValueError:
            raise GoneError(f"there is no actor {self.actor_name(index)!r}") from None

    def find_or_create_actor(self, index: int) -> Any:
        """The actor that holds the shard at `index`, created if there is none."""
        import ray

        actor: Any = ray.remote(RayHubActor)
        lifetime = {"lifetime": "detached"} if self.detached else {}
        return actor.options(
            name=self.actor_name(index),
            namespace=self.namespace,
            get_if_exists=True,
            num_cpus=0,
            memory=1,  # Ray ignores the node affinity of an actor that requires no resource
            max_concurrency=_MAX_CONCURRENT_CALLS,
            max_restarts=-1,
            scheduling_strategy=_preferred_node(),
            **lifetime,
        ).remote(self.config, self.record, index, self.shard_client)

    def shard_client(
        self, index: int
    ) -> ActorClient[ForwardedRequest, tuple[JudgementResult, bool]]:
        """A client with which one shard asks the shard at `index` for judgements."""
        return ActorClient(self, index)


class ActorCallTransport(Generic[T, R]):
    """A session by calls of the actor's methods, where no TCP connection can be made.

    Args:
        actor: of the hub.
        session: its secret name.
        answer: awaits an actor's method; takes ``more_s``, added to the usual timeout.
        dumps: pickles a call's payload.
    """

    def __init__(self, actor: Any, session: str, answer: AwaitAnswer, *, dumps: Pickler) -> None:
        self._dumps = dumps
        self._actor = actor
        self._session = session
        self._answer = answer
        self.over = False
        """Whether the hub ended the session."""

    async def submit(self, calls: list[tuple[int, T]], cancelled: list[int]) -> bool:
        """Send calls and cancelled ids; False: the session is over."""
        message = encode_message(calls, cancelled, dumps=self._dumps)
        is_open: bool = await self._answer(self._actor.submit.remote(self._session, message))
        self.over = self.over or not is_open
        return is_open

    async def collect(self) -> list[CallResult[R]] | None:
        """The next results, empty for a heartbeat; None: the session is over."""
        call = self._actor.collect.remote(self._session)
        results: list[CallResult[R]] | None = await self._answer(call, more_s=HEARTBEAT_S)
        self.over = self.over or results is None
        return results


class TransportSelection:
    """Opens sessions with one actor: over TCP where that works, else by calls of its methods.

    Args:
        silence_timeout_s: how long the actor may send nothing over a connection.
    """

    def __init__(self, *, silence_timeout_s: float) -> None:
        self._silence_timeout_s = silence_timeout_s
        self._suspect: RpcAddress | None = None
        self._fell_silent: RpcAddress | None = None
        self._avoided: RpcAddress | None = None
        self._avoided_until = 0.0

    @asynccontextmanager
    async def session(
        self, actor: Any, config: str, shards: int | None, previous: str, *, answer: AwaitAnswer
    ) -> AsyncGenerator[tuple[str, RpcConnection[Any, Any] | ActorCallTransport[Any, Any]], None]:
        """A new session: its secret name and its transport.

        An address whose connection failed, was cut before it brought a message, or fell silent
        twice, is not tried again for some minutes: an actor that was restarted has another one.

        Args:
            actor: of the hub.
            config: see `HubActor.open_session`, as for the next two.
            shards: how many the hub has, or None.
            previous: the session before this one.
            answer: see `ActorCallTransport`.
        """
        import ray

        name = secrets.token_hex(SECRET_CHARS // 2)
        dumps = ray.cloudpickle.dumps
        opening = actor.open_session.remote(config, name, shards, previous)
        address: RpcAddress | None = await answer(opening)
        connection: RpcConnection[Any, Any] | None = None
        over = False
        try:
            if address is not None and address == self._suspect:
                # the hub still has the same address, so its restart did not cut the connection
                self._avoid(address)
            if address is not None and not self._avoids(address):
                connection = await open_connection(
                    address,
                    name,
                    dumps=dumps,
                    heartbeat_s=HEARTBEAT_S,
                    silence_timeout_s=self._silence_timeout_s,
                )
                if connection is None:
                    self._avoid(address)
            transport: RpcConnection[Any, Any] | ActorCallTransport[Any, Any]
            transport = connection or ActorCallTransport(actor, name, answer, dumps=dumps)
            yield name, transport
            over = transport.over
            if connection is not None and connection.silent:
                _log.warning("the hub sent nothing for a while: the connection is opened again")
                self._suspect = address if address == self._fell_silent else None
                self._fell_silent = address
            elif connection is not None and not connection.received_any:
                self._suspect = address
        finally:
            if connection is not None:
                connection.close()
            if not over:
                actor.close_session.remote(name)

    def _avoids(self, address: RpcAddress) -> bool:
        return address == self._avoided and (
            asyncio.get_running_loop().time() < self._avoided_until
        )

    def _avoid(self, address: RpcAddress) -> None:
        known = address == self._avoided
        self._suspect, self._avoided = None, address
        self._avoided_until = asyncio.get_running_loop().time() + _AVOIDED_S
        if known:
            return  # the warning was given when it was avoided first
        _log.warning(
            "no connection to the hub at %s:%d lasts, so rows go there by calls of its actor, "
            "which costs more CPU time",
            address.host,
            address.port,
        )


class ActorClient(Generic[T, R]):
    """RPC client of one actor of a hub, through the actor's restarts.

    The call of a Ray actor's method costs more than a judgement, so one opens a session and all
    rows of the process travel in it.

    Args:
        address: of the hub's actors.
        index: of the actor.
    """

    def __init__(self, address: ActorAddress, index: int) -> None:
        self._address = address
        self._index = index
        self._name = address.actor_name(index)
        self._pending: dict[asyncio.AbstractEventLoop, PendingCalls[T, R]] = {}
        self._pumps: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}
        self._actor: Any = None
        self._transports = TransportSelection(
            silence_timeout_s=min(_SILENCE_S, HEARTBEAT_S + address.patience_s)
        )
        self.shards: int | None = None

    def connect(self) -> Any:
        """The actor, looked up or created now."""
        self._actor = self._address.find_or_create_actor(self._index)
        return self._actor

    async def request(self, payload: T) -> R:
        """The hub's result for `payload`, sent in this process's session.

        Raises:
            ZerowaitError: as the hub raised it.
            HubLostError: the actor was gone or silent for longer than ``patience_s``.
        """
        loop = asyncio.get_running_loop()
        pending = self._pending.get(loop)
        if pending is None:
            self._forget_closed_loops()
            pending = self._pending[loop] = PendingCalls()
        running = self._pumps.get(loop)
        if running is None or running.done():
            self._pumps[loop] = asyncio.create_task(self._run_sessions(pending))
        return await pending.call(payload)

    async def call(self, method: str, *arguments: Any, patience_s: float | None = None) -> Any:
        """What one method of the actor returns, through its restarts.

        Args:
            method: its name.
            arguments: of the method.
            patience_s: instead of the address's own.

        Raises:
            As `request`.
        """
        import ray

        outage = _Outage(self._name, self._address.patience_s)
        while True:
            try:
                actor = self._actor or await asyncio.to_thread(self.connect)
                return await self._answer(getattr(actor, method).remote(*arguments), patience_s)
            except ray.exceptions.RayActorError as error:
                if outage.too_long(error):
                    raise self._lost(error) from error
                await self._reconnect()

    async def current_load(self, others: JudgementCounts) -> ShardLoad:
        """See `zerowait.hub.slots.ShardMember.current_load`."""
        load: ShardLoad = await self._call_if_running("current_load", others)
        return load

    async def set_slots(self, slots: int) -> ShardLoad:
        """See `zerowait.hub.slots.ShardMember.set_slots`."""
        load: ShardLoad = await self._call_if_running("set_slots", slots)
        return load

    def kill(self) -> None:
        """End the actor."""
        import ray

        ray.kill(self._actor)

    def _forget_closed_loops(self) -> None:
        """Drop closed loops; weak references would keep them, as pending calls hold their loop."""
        for loop in list(self._pending):
            if loop.is_closed():
                self._pending.pop(loop, None)
                self._pumps.pop(loop, None)

    async def _call_if_running(self, method: str, *arguments: Any) -> Any:
        """What a method returns, if the actor is running now; creates none.

        Raises:
            GoneError: it is dead. HubLostError: it may be restarting, or did not answer in time.
        """
        import ray

        try:
            actor = self._actor or await asyncio.to_thread(self._address.find_actor, self._index)
            self._actor = actor
            return await self._answer(getattr(actor, method).remote(*arguments))
        except ray.exceptions.ActorDiedError as error:
            self._actor = None
            raise GoneError(f"the actor {self._name!r} is dead") from error
        except ray.exceptions.RayActorError as error:
            raise self._lost(error) from error

    async def _run_sessions(self, pending: PendingCalls[T, R]) -> None:
        """Open one session after the other, through restarts, until no caller waits."""
        import ray

        outage = _Outage(self._name, self._address.patience_s)
        previous = ""
        await asyncio.sleep(0)  # the caller that started this task has yet to queue its call
        while pending.waiting:
            pending.requeue()
            try:
                actor = self._actor or await asyncio.to_thread(self.connect)
                arguments = (self._address.config, self.shards, previous)
                async with self._transports.session(
                    actor, *arguments, answer=self._answer
                ) as session:
                    previous, transport = session
                    outage.end()
                    await pump(pending, transport)
            except ray.exceptions.RayActorError as error:
                if outage.too_long(error):
                    pending.fail(self._lost(error))
                await self._reconnect()
            except TimeoutError:
                pending.fail(self._lost(None))
            except ZerowaitError as error:
                pending.fail(error)
            except BaseException as error:
                pending.fail(HubLostError(f"the handle on the hub broke: {type(error).__name__}"))
                raise
            await asyncio.sleep(0)  # callers that got a result leave `pending`

    async def _answer(
        self, reference: Any, patience_s: float | None = None, *, more_s: float = 0.0
    ) -> Any:
        """What an actor's method returns; an error of ours that it raises is raised here.

        Args:
            reference: what ``method.remote()`` returned.
            patience_s: the timeout in seconds; None: the address's own.
            more_s: added to the timeout.

        Raises:
            HubLostError: it did not answer in time.
        """
        import ray

        answer = asyncio.wrap_future(reference.future())
        try:
            # `asyncio.timeout` would fire in a process that was suspended, though an answer came
            timeout_s = (patience_s or self._address.patience_s) + more_s
            await asyncio.wait({answer}, timeout=timeout_s)
            if not answer.done():
                raise self._lost(None)
            return answer.result()
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, ZerowaitError):
                raise error.cause from None
            raise
        finally:
            answer.cancel()

    async def _reconnect(self) -> None:
        """Look the actor up, or create another where it died with its creator."""
        import ray

        await asyncio.sleep(random.uniform(*_RECONNECT_PAUSE_S))
        try:
            async with asyncio.timeout(self._address.patience_s):
                await asyncio.to_thread(self.connect)
        except (ValueError, ray.exceptions.RayError):
            return  # the name belonged to an actor that died meanwhile: the next call fails again
        except TimeoutError:
            return  # the next call finds out how long the outage lasts

    def _lost(self, error: BaseException | None) -> HubLostError:
        why = f": {error}" if error is not None else ""
        seconds = f"{self._address.patience_s:g} s"
        return HubLostError(f"the hub {self._name!r} did not answer for {seconds}{why}")


class _Outage:
    """How long an actor has been gone; its beginning and its end are logged.

    Args:
        name: of the actor, for the log.
        patience_s: seconds after which it is too long.
    """

    def __init__(self, name: str, patience_s: float) -> None:
        self._name = name
        self._patience_s = patience_s
        self._since: float | None = None

    def end(self) -> None:
        if self._since is not None:
            gone_s = asyncio.get_running_loop().time() - self._since
            _log.warning("the hub %r is back after %.0f s", self._name, gone_s)
        self._since = None

    def too_long(self, error: BaseException) -> bool:
        """Whether the outage exceeds ``patience_s``; it begins with the first call of this."""
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
            _log.warning(
                "the hub %r is gone, and rows wait until Ray has started it again, for %g s at "
                "most: %s",
                self._name,
                self._patience_s,
                " ".join(str(error).split()),
            )
        return now - self._since > self._patience_s


def _preferred_node() -> Any:
    """Ray's scheduling strategy for the hub: the node with `HUB_RESOURCE`, else the head node.

    Where neither is alive, Ray puts it on any node.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node for node in ray.nodes() if node["Alive"]]
    for resource in (HUB_RESOURCE, "node:__internal_head__"):
        for node in nodes:
            if resource in node["Resources"]:
                return NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)
    return "DEFAULT"


def absolute_path(path: str) -> str:
    """`path` independent of a process's working directory; symbolic links stay."""
    return os.path.abspath(Path(path).expanduser())  # noqa: PTH100 - resolve() would follow links
