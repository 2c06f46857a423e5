"""The hub as a named Ray actor: created once per job, found by every worker."""

from __future__ import annotations

import asyncio
import os
import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zerowait.engine import Stats
from zerowait.errors import HubLostError, ZerowaitError
from zerowait.hub.actor import HubActor
from zerowait.hub.pulse import BEAT_S, Pulse
from zerowait.hub.streaming import Streamed
from zerowait.types import Sample

_WAITING_CALLS = 100_000
_PAUSE_S = (0.1, 0.5)


class RayHub:
    """A handle on the job's hub from inside any of its Ray workers.

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
        patience_s: how long the hub may be gone before callers are told.
    """

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
        self._client = uuid.uuid4().hex
        self._met = False
        self._pulse = Pulse(self._beat, name=repr(name), every_s=BEAT_S, patience_s=patience_s)
        self._actor = self._found_or_created()

    async def ready(self) -> None:
        """Wait until the hub is open.

        Raises:
            ConfigError: its configuration is wrong, or another than this handle's.
            HubLostError: it was gone for longer than `patience_s`.
        """
        await self._ask(lambda actor: actor.ready.remote(self._config))
        self._met = True

    async def reward(self, sample: Sample) -> Streamed:
        """See `JobHub.reward`.

        Raises:
            JudgementError, ConfigError, ClosedError: as the hub raised it.
            HubLostError: the hub was gone for longer than `patience_s`.
        """
        if not self._met:
            await self.ready()
        streamed: Streamed = await self._ask(
            lambda actor: actor.reward.remote(self._client, sample)
        )
        return streamed

    async def stats(self) -> Stats:
        """A frozen snapshot of the whole job; after a restart it starts from 0."""
        stats: Stats = await self._ask(lambda actor: actor.stats.remote())
        return stats

    async def aclose(self, *, drain_s: float = 0.0) -> None:
        """End the hub for everybody who uses it; a detached one ends no other way.

        Args:
            drain_s: how long requests already sent may still bring their answer into the cache.
        """
        import ray

        async with asyncio.timeout(drain_s + self._patience_s):
            await self._ask(lambda actor: actor.aclose.remote(drain_s))
        ray.kill(self._actor)

    async def _ask(self, call: Callable[[Any], Any]) -> Any:
        """The hub's answer, through its restarts."""
        import ray

        lost_at: float | None = None
        while True:
            try:
                return await self._answer(call(self._actor))
            except ray.exceptions.RayTaskError as error:
                if not isinstance(error.cause, ZerowaitError):
                    raise
                if not isinstance(error.cause, HubLostError):
                    raise error.cause from None
                continue  # the hub took us for dead: hand it in again
            except ray.exceptions.RayActorError as error:
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at > self._patience_s:
                    raise self._lost(error) from error
            await asyncio.sleep(random.uniform(*_PAUSE_S))
            await self._reconnect(lost_at)

    async def _answer(self, reference: Any) -> Any:
        """What the hub answers, while it shows that it is alive."""
        import ray

        answer = asyncio.wrap_future(reference.future())
        try:
            return await self._pulse.answer(answer)
        except BaseException:
            if not answer.done():
                answer.cancel()
                ray.cancel(reference)  # frees its place in the hub; calls that others share go on
            raise

    async def _beat(self) -> None:
        await asyncio.wrap_future(self._actor.beat.remote(self._client).future())

    async def _reconnect(self, lost_at: float) -> None:
        """Looks the hub up again, or creates it anew where it died with its creator."""
        import ray

        left_s = lost_at + self._patience_s - time.monotonic()
        try:
            async with asyncio.timeout(max(left_s, _PAUSE_S[1])):
                self._actor = await asyncio.to_thread(self._found_or_created)
        except (ValueError, ray.exceptions.RayError):
            return  # the name belonged to a hub that died meanwhile: the next call shows it again
        except TimeoutError:
            raise self._lost(None) from None

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
