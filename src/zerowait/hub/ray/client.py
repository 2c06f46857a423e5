"""A process's link to one actor of a hub: what it wants is handed in and collected by the batch."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from zerowait.engine import ForwardedRequest, JudgementResult
from zerowait.engine.collector import collect_rarely
from zerowait.errors import HubLostError, ZerowaitError
from zerowait.hub.ray.actor import HubActor
from zerowait.hub.ray.transports import TransportSelection
from zerowait.hub.rpc.pending_calls import PendingCalls, converse
from zerowait.hub.rpc.sessions import HEARTBEAT_S
from zerowait.hub.slots import GoneError, ShardLoad

T = TypeVar("T")
R = TypeVar("R")

_WAITING_CALLS: Final = 100_000
_PAUSE_S: Final = (0.1, 0.5)


class ActorAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job's hub lives: enough for any process to find its actors, or to create them.

    Args:
        config: path of the reward configuration. record: the folder for the record, or None.
        name: of the first actor. namespace: of the names; None: the job's own.
        detached: they outlive the job that created them.
        patience_s: how long an actor may be gone or silent before callers are told.
    """

    config: str
    record: str | None
    name: str
    namespace: str | None
    detached: bool
    patience_s: float

    def name_of(self, index: int) -> str:
        """The name of the actor with the shard at `index`."""
        return self.name if index == 0 else f"{self.name}-{index}"

    def found(self, index: int) -> Any:
        """The actor of that name.

        Raises:
            GoneError: there is none.
        """
        import ray

        try:
            return ray.get_actor(self.name_of(index), namespace=self.namespace)
        except ValueError:
            raise GoneError(f"there is no actor {self.name_of(index)!r}") from None

    def found_or_created(self, index: int) -> Any:
        """The actor of that name, new where there was none."""
        import ray

        actor: Any = ray.remote(HubClient)
        lifetime = {"lifetime": "detached"} if self.detached else {}
        return actor.options(
            name=self.name_of(index),
            namespace=self.namespace,
            get_if_exists=True,
            num_cpus=0,
            max_concurrency=_WAITING_CALLS,
            max_restarts=-1,
            scheduling_strategy=_near_the_head(),
            **lifetime,
        ).remote(self.config, self.record, index, self.peer)

    def peer(self, index: int) -> ActorClient[ForwardedRequest, tuple[JudgementResult, bool]]:
        """A link for one actor of the hub to another."""
        return ActorClient(self, index)


class HubClient(HubActor):
    """The hub as Ray keeps it, in a process with nothing else in it."""

    def __init__(self, *arguments: Any) -> None:
        import ray

        collect_rarely()
        # rows do not travel in the clear where Ray's own messages do not
        host = None if _encrypted() else ray.util.get_node_ip_address()
        super().__init__(*arguments, host=host)


class ActorClient(Generic[T, R]):
    """From one process to one actor of a hub, through the actor's restarts.

    A call of a Ray actor costs more than a judgement, so calls only begin a session, and items
    travel over a connection to the actor's process. Where none can be made, they are handed in and
    collected by the batch: whatever gathered while the last call was under way.

    Args:
        site: where the hub lives.
        index: of the actor.
    """

    def __init__(self, site: ActorAddress, index: int) -> None:
        self._site = site
        self._index = index
        self._desks: dict[asyncio.AbstractEventLoop, PendingCalls[T, R]] = {}
        self._couriers: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}
        self._actor: Any = None
        self._ways = TransportSelection(silence_s=HEARTBEAT_S + site.patience_s)
        self.shards: int | None = None

    def connect(self) -> Any:
        """The actor, looked up or created now."""
        self._actor = self._site.found_or_created(self._index)
        return self._actor

    async def ask(self, item: T) -> R:
        """What comes of `item`.

        Raises:
            ZerowaitError: as the hub raised it.
            HubLostError: it was gone or silent for longer than ``patience_s``.
        """
        loop = asyncio.get_running_loop()
        desk = self._desks.get(loop)
        if desk is None:
            self._forget_closed()
            desk = self._desks[loop] = PendingCalls()
        courier = self._couriers.get(loop)
        if courier is None or courier.done():
            self._couriers[loop] = asyncio.create_task(self._serve(desk))
        return await desk.result(item)

    async def call(self, method: str, *arguments: Any, patience_s: float | None = None) -> Any:
        """The actor's answer to a single question, through its restarts; raises as `ask` does."""
        import ray

        lost = _Lost(self._site.patience_s)
        while True:
            try:
                actor = self._actor or await asyncio.to_thread(self.connect)
                return await self._answer(getattr(actor, method).remote(*arguments), patience_s)
            except ray.exceptions.RayActorError as error:
                if lost.too_long():
                    raise self._lost(error) from error
                await self._reconnect()

    async def report(self) -> ShardLoad:
        """See `Member.report`."""
        report: ShardLoad = await self._at_once("report")
        return report

    async def take(self, slots: int) -> ShardLoad:
        """See `Member.take`."""
        report: ShardLoad = await self._at_once("take", slots)
        return report

    def kill(self) -> None:
        """End the actor."""
        import ray

        ray.kill(self._actor)

    def _forget_closed(self) -> None:
        """Lets go of loops that are over; weak references would not, as a desk holds its loop."""
        for loop in list(self._desks):
            if loop.is_closed():
                self._desks.pop(loop, None)
                self._couriers.pop(loop, None)

    async def _at_once(self, method: str, *arguments: Any) -> Any:
        """The actor's answer, if it is there now; creates none.

        Raises:
            GoneError: it is dead. HubLostError: nobody knows.
        """
        import ray

        try:
            actor = self._actor or await asyncio.to_thread(self._site.found, self._index)
            self._actor = actor
            return await self._answer(getattr(actor, method).remote(*arguments))
        except ray.exceptions.ActorDiedError as error:
            self._actor = None
            raise GoneError(f"the actor {self._site.name_of(self._index)!r} is dead") from error
        except ray.exceptions.RayActorError as error:  # perhaps it is being started again
            raise self._lost(error) from error

    async def _serve(self, desk: PendingCalls[T, R]) -> None:
        """Works until nobody waits at the desk any more; goes on where the hub is started again."""
        import ray

        lost = _Lost(self._site.patience_s)
        before = ""
        await asyncio.sleep(0)  # whoever started us is about to wait at the desk
        while desk.waiting:
            desk.again()
            try:
                actor = self._actor or await asyncio.to_thread(self.connect)
                joined = (self._site.config, self.shards, before)
                async with self._ways.session(actor, *joined, answer=self._answer) as session:
                    before, way = session
                    lost.found()
                    await converse(way, desk)
            except ray.exceptions.RayActorError as error:
                if lost.too_long():
                    desk.fail(self._lost(error))
                await self._reconnect()
            except TimeoutError:
                desk.fail(self._lost(None))
            except ZerowaitError as error:
                desk.fail(error)
            except BaseException as error:
                desk.fail(HubLostError(f"the handle on the hub broke: {type(error).__name__}"))
                raise
            await asyncio.sleep(0)  # those who got an answer leave the desk

    async def _answer(
        self, reference: Any, patience_s: float | None = None, *, more_s: float = 0.0
    ) -> Any:
        """What the hub answers to one call; what it raises is raised here.

        Raises:
            HubLostError: it did not answer in time.
        """
        import ray

        answer = asyncio.wrap_future(reference.future())
        try:
            # a timeout would rather fire than see what came while this process stood still
            await asyncio.wait({answer}, timeout=(patience_s or self._site.patience_s) + more_s)
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
        """Looks the actor up again, or creates it anew where it died with its creator."""
        import ray

        await asyncio.sleep(random.uniform(*_PAUSE_S))
        try:
            async with asyncio.timeout(self._site.patience_s):
                await asyncio.to_thread(self.connect)
        except (ValueError, ray.exceptions.RayError):
            return  # the name belonged to a hub that died meanwhile: the next call shows it again
        except TimeoutError:
            return  # the next call tells how long the hub has been gone

    def _lost(self, error: BaseException | None) -> HubLostError:
        why = f": {error}" if error is not None else ""
        name = self._site.name_of(self._index)
        return HubLostError(f"the hub {name!r} did not answer for {self._site.patience_s:g} s{why}")


class _Lost:
    """Since when the hub is gone."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._since: float | None = None

    def found(self) -> None:
        self._since = None

    def too_long(self) -> bool:
        """Whether it has been gone for longer than one has patience; asked when it is gone."""
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
        return now - self._since > self._patience_s


def _near_the_head() -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    for node in ray.nodes():
        if "node:__internal_head__" in node["Resources"]:
            return NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)
    return "DEFAULT"


def _encrypted() -> bool:
    """Whether Ray's processes talk over TLS."""
    return os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")


def absolute(path: str) -> str:
    """`path` independent of the folder that a process happens to be in."""
    return os.path.abspath(Path(path).expanduser())  # noqa: PTH100 - resolve() would follow links
