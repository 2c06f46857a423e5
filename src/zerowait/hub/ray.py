"""The hub as a named Ray actor: created once per job, found by every worker."""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from pathlib import Path
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from zerowait.engine import Stats
from zerowait.errors import HubLostError, ZerowaitError
from zerowait.hub.actor import BEAT_S, HubActor
from zerowait.hub.desk import Desk
from zerowait.hub.streaming import Streamed
from zerowait.types import Reward, Sample

_Desk: TypeAlias = Desk[Sample, Streamed | Reward]

_WAITING_CALLS: Final = 100_000
_PAUSE_S: Final = (0.1, 0.5)


class RayHub:
    """A handle on the job's hub from inside any of its Ray workers.

    A call of a Ray actor costs more than a judgement, so rewards are handed in and collected by
    the batch: whatever gathered while the last call was under way.

    When the hub's process dies, Ray starts it again, and when it died with the worker that had
    created it, the next caller creates it anew. Callers notice neither: what they wait for is
    handed in again, and whatever was judged and committed before comes from the cache.

    Args:
        config: path of the reward configuration, readable where the actor lives: on the cluster's
            head node while there is room, so that the cache stays in one place.
        record: the folder for the record, or None.
        name: the actor's name; two hubs of one job need two names.
        namespace: of the name; jobs that give the same one share a hub. None: the job's own.
        detached: the hub outlives the job that created it, until `aclose`.
        patience_s: how long the hub may be gone or silent before callers are told.
    """

    _tickets = False

    def __init__(
        self,
        config: str,
        *,
        record: str | None,
        name: str = "zerowait-hub",
        namespace: str | None = None,
        detached: bool = False,
        patience_s: float = 120.0,
    ) -> None:
        self._config = _absolute(config)
        self._record = None if record is None else _absolute(record)
        self._options = {"name": name, "namespace": namespace}
        if detached:
            self._options["lifetime"] = "detached"
        self._patience_s = patience_s
        self._desks: WeakKeyDictionary[asyncio.AbstractEventLoop, _Desk] = WeakKeyDictionary()
        self._couriers: WeakKeyDictionary[_Desk, asyncio.Task[None]] = WeakKeyDictionary()
        self._actor = self._found_or_created()

    async def ready(self) -> None:
        """Wait until the hub is open.

        Raises:
            ConfigError: its configuration is wrong, or another than this handle's.
            HubLostError: it was gone for longer than `patience_s`.
        """
        await self._ask("ready", self._config)

    async def reward(self, sample: Sample) -> Streamed:
        """See `JobHub.reward`.

        Raises:
            JudgementError, DataError, ConfigError, ClosedError: as the hub raised it.
            HubLostError: the hub was gone or silent for longer than `patience_s`.
        """
        streamed = await self._handed_in(sample)
        assert isinstance(streamed, Streamed)  # noqa: S101 - what a session without tickets brings
        return streamed

    async def stats(self) -> Stats:
        """A frozen snapshot of the whole job; after a restart it starts from 0."""
        stats: Stats = await self._ask("stats")
        return stats

    async def aclose(self, *, drain_s: float = 0.0) -> None:
        """End the hub for everybody who uses it; a detached one ends no other way.

        Args:
            drain_s: how long requests already sent may still bring their answer into the cache.
        """
        import ray

        await self._answer(self._actor.aclose.remote(drain_s), drain_s + self._patience_s)
        ray.kill(self._actor)

    async def _handed_in(self, sample: Sample) -> Streamed | Reward:
        desk = self._desks.setdefault(asyncio.get_running_loop(), _Desk())
        courier = self._couriers.get(desk)
        if courier is None or courier.done():
            self._couriers[desk] = asyncio.create_task(self._serve(desk))
        return await desk.reward(sample)

    async def _serve(self, desk: _Desk) -> None:
        """Works until nobody waits at the desk any more; goes on where the hub is started again."""
        import ray

        lost = _Lost(self._patience_s)
        await asyncio.sleep(0)  # whoever started us is about to wait at the desk
        while desk.waiting:
            desk.again()
            session = uuid.uuid4().hex
            try:
                await self._answer(
                    self._actor.join.remote(self._config, session, tickets=self._tickets)
                )
                lost.found()
                await self._converse(desk, session)
            except ray.exceptions.RayActorError as error:
                if lost.too_long():
                    desk.fail(self._lost(error))
                await self._reconnect()
            except ZerowaitError as error:
                desk.fail(error)
            except BaseException as error:
                desk.fail(HubLostError(f"the handle on the hub broke: {type(error).__name__}"))
                raise
            await asyncio.sleep(0)  # those who got an answer leave the desk

    async def _converse(self, desk: _Desk, session: str) -> None:
        """Hands in and collects until nobody has waited for a while, or the session is over.

        Raises:
            RayActorError: the hub's process is gone.
            HubLostError: it said nothing for `patience_s`.
        """
        writing = asyncio.create_task(self._write(desk, session))
        collecting: asyncio.Task[Any] | None = None
        try:
            while not writing.done():
                if collecting is None:
                    collect = self._actor.collect.remote(session)
                    collecting = asyncio.create_task(
                        self._answer(collect, BEAT_S + self._patience_s)
                    )
                await asyncio.wait({collecting, writing}, return_when=asyncio.FIRST_COMPLETED)
                if collecting.done():
                    results, collecting = collecting.result(), None
                    if results is None or not (results or desk.waiting):
                        return
                    desk.settle(results)
            writing.result()
        finally:
            tasks = {writing} if collecting is None else {writing, collecting}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self._actor.leave.remote(session)

    async def _write(self, desk: _Desk, session: str) -> None:
        """Hands in what is posted; returns when the session is over."""
        known = True
        while known:
            samples, given_up = await desk.batch()
            known = await self._answer(self._actor.submit.remote(session, samples, given_up))

    async def _ask(self, method: str, *arguments: Any) -> Any:
        """The hub's answer to a single question, through its restarts."""
        import ray

        lost = _Lost(self._patience_s)
        while True:
            try:
                return await self._answer(getattr(self._actor, method).remote(*arguments))
            except ray.exceptions.RayActorError as error:
                if lost.too_long():
                    raise self._lost(error) from error
                await self._reconnect()

    async def _answer(self, reference: Any, patience_s: float | None = None) -> Any:
        """What the hub answers to one call; what it raises is raised here.

        Raises:
            HubLostError: it did not answer in `patience_s`.
        """
        import ray

        try:
            async with asyncio.timeout(patience_s or self._patience_s):
                return await asyncio.wrap_future(reference.future())
        except TimeoutError:
            raise self._lost(None) from None
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, ZerowaitError):
                raise error.cause from None
            raise

    async def _reconnect(self) -> None:
        """Looks the hub up again, or creates it anew where it died with its creator."""
        import ray

        await asyncio.sleep(random.uniform(*_PAUSE_S))
        try:
            async with asyncio.timeout(self._patience_s):
                self._actor = await asyncio.to_thread(self._found_or_created)
        except (ValueError, ray.exceptions.RayError):
            return  # the name belonged to a hub that died meanwhile: the next call shows it again
        except TimeoutError:
            return  # the next call tells how long the hub has been gone

    def _found_or_created(self) -> Any:
        import ray

        actor: Any = ray.remote(HubActor)
        return actor.options(
            **self._options,
            get_if_exists=True,
            num_cpus=0,
            max_concurrency=_WAITING_CALLS,
            max_restarts=-1,
            scheduling_strategy=_near_the_head(),
        ).remote(self._config, self._record)

    def _lost(self, error: BaseException | None) -> HubLostError:
        why = f": {error}" if error is not None else ""
        return HubLostError(
            f"the hub {self._options['name']!r} did not answer for {self._patience_s:g} s{why}"
        )


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


def _absolute(path: str) -> str:
    """`path` independent of the folder that a process happens to be in."""
    return os.path.abspath(Path(path).expanduser())  # noqa: PTH100 - resolve() would follow links
