"""Judges that are served for a Ray job: each replica is an actor that Ray places with its GPUs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from zerowait.config import RewardConfig
from zerowait.config.endpoint import VERL_HOST
from zerowait.engine.serving.commands import MissingError
from zerowait.engine.serving.process import (
    RESTARTS,
    ServerFailedError,
    ServerPlace,
    ServerPlan,
    ServerProcess,
)
from zerowait.engine.serving.servers import (
    LOGS,
    ServedEndpoint,
    check_servers,
    gpus_of,
    served_endpoints,
    server_plans,
    start_failure,
)
from zerowait.errors import ConfigError

_POLL_S: Final = 20.0
_PAUSE_S: Final = 1.0
_CLOSING_S: Final = 20.0
_PATIENCE_S: Final = 60.0
"""An actor that says nothing for so long after a call's own time is taken for lost."""

_VERLS_WORKER: Final = "reward_loop_worker_0"

_LOG = logging.getLogger(__name__)


class ServerActor:
    """One replica's server and the process that owns it, placed by Ray.

    Args:
        plan: what it serves; the address is that of the node where Ray has placed it.
    """

    def __init__(self, plan: ServerPlan) -> None:
        import ray

        folder = plan.folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:  # a node that does not have the file system of the run's folder
            folder = Path(tempfile.mkdtemp(prefix="zerowait-judge-"))
        host = ray.util.get_node_ip_address()
        self._server = ServerProcess(msgspec.structs.replace(plan, host=host, folder=folder))
        self._started = False

    async def place(self, known: ServerPlace | None) -> tuple[ServerPlace | None, str]:
        """Where it listens, or None and why not, as soon as that is not `known`, or in 20 s.

        Raises:
            MissingError: its program is not installed on this node.
            ServerFailedError: it did not start, or was given up.
        """
        if not self._started:
            self._server.start()
            self._started = True
        place = await self._server.wait_changed(known, timeout_s=_POLL_S)
        return place, self._server.problem

    async def aclose(self) -> None:
        """End the server."""
        await self._server.aclose()


class RayServers:
    """The servers of a job's judges, shared by all shards of its hub; belongs to one event loop.

    The first shard that needs a replica creates its actor, the others find it by its name. Where an
    actor dies, with its node for one, another is created, and its address is used from then on.

    Args:
        config: of the rewards.
        record: the folder of the run, which gets the servers' logs; None: a temporary one.
    """

    def __init__(self, config: RewardConfig, record: Path | None) -> None:
        self._config = config
        self._folder = (record or Path(tempfile.gettempdir()) / "zerowait") / LOGS
        self._places: dict[str, ServerPlace | str] = {}
        self._plans: dict[str, ServerPlan] = {}
        self._served: dict[str, ServedEndpoint] = {}
        self._actors: dict[str, Any] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[str] = set()
        self._ready = asyncio.Event()
        self._failure: ConfigError | None = None

    async def __aenter__(self) -> Self:
        check_servers(self._config, here=False)
        await asyncio.to_thread(self._check_gpus)
        for served in served_endpoints(self._config):
            plans = server_plans(self._config, served, folder=self._folder, gpus=None)
            self._plans |= plans
            self._served |= dict.fromkeys(plans, served)
        self._waiting = set(self._plans)
        for host in self._plans:
            self._places[host] = "Ray has not placed it yet"
            self._start(self._follow(host))
        endpoints = [each for judge in self._config.judges.values() for each in judge.endpoints]
        if any(endpoint.is_verls for endpoint in endpoints):
            self._places[VERL_HOST] = "verl has not started it yet"
            self._start(self._find_verls_router())
        if not self._waiting:
            self._ready.set()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        async with asyncio.TaskGroup() as closing:
            for actor in self._actors.values():
                closing.create_task(_end(actor))

    def place(self, host: str) -> ServerPlace | str:
        """See `JudgeServers.place`."""
        return self._places[host]

    async def wait_ready(self) -> None:
        """See `JudgeServers.wait_ready`; verl's own servers are not waited for."""
        if not self._ready.is_set():
            await self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(_log_error)

    def _check_gpus(self) -> None:
        """Raise a ConfigError where the cluster has fewer GPUs than the judges need."""
        import ray

        wanted, there = gpus_of(self._config), int(ray.cluster_resources().get("GPU", 0))
        if wanted <= there:
            return
        served = next(
            each
            for each in served_endpoints(self._config)
            if each.endpoint.serve is not None and each.endpoint.serve.gpus_each
        )
        self._config.fail(
            (*served.at, "serve", "gpus"),
            f"asks for {wanted} GPUs for all served judges, and Ray's cluster has {there}",
        )

    async def _follow(self, host: str) -> None:
        """Know where a replica listens, through the deaths of its actor."""
        import ray

        plan, deaths = self._plans[host], 0
        while True:
            try:
                actor = self._actors[host] = await asyncio.to_thread(_find_or_create, plan)
                await self._follow_actor(host, actor)
            except (MissingError, ServerFailedError) as error:
                self._give_up(host, error)
                await _end(self._actors.pop(host))  # its name is free for a corrected one
                return
            except (ray.exceptions.RayError, ValueError) as error:
                # the name may belong to an actor that dies, which is no actor and not free yet
                deaths += 1
                first = next(iter(str(error).splitlines()), type(error).__name__)
                self._places[host] = f"its actor died: {first}"
                _LOG.warning("judge server %s: its actor died: %s", plan.title, first)
                if deaths > RESTARTS:
                    self._give_up(host, ServerFailedError(f"died with its actor {deaths} times"))
                    return
                await asyncio.sleep(_PAUSE_S * 2 ** (deaths - 1))

    async def _follow_actor(self, host: str, actor: Any) -> None:
        known: ServerPlace | None = None
        limit_s = self._plans[host].settings.ready_timeout_s
        timeout_s = limit_s + _PATIENCE_S  # until Ray has placed it
        while True:
            known, problem = await _answer(actor.place.remote(known), timeout_s)
            timeout_s = _POLL_S + _PATIENCE_S
            self._places[host] = known or problem
            if known is not None:
                self._waiting.discard(host)
                if not self._waiting:
                    self._ready.set()

    def _give_up(self, host: str, error: Exception) -> None:
        """A replica does not start, which ends the work, or died for good, which the log tells."""
        failure = start_failure(self._config, self._served[host], error)
        self._places[host] = str(error).partition("\n")[0]
        _LOG.error("judge server %s: %s", self._plans[host].title, error)
        if host in self._waiting:
            self._failure = failure
            self._ready.set()

    async def _find_verls_router(self) -> None:
        """The address of the router in front of verl's own reward-model servers."""
        import ray

        while True:
            try:
                worker = await asyncio.to_thread(ray.get_actor, _VERLS_WORKER)
                address = await _answer(worker.__ray_call__.remote(_router_of), _PATIENCE_S)
            except (ray.exceptions.RayError, ValueError):
                await asyncio.sleep(_PAUSE_S)  # it comes when verl's trainer starts its workers
                continue
            if not address:
                self._places[VERL_HOST] = "verl starts none: reward.reward_model.enable is off"
                return
            self._places[VERL_HOST] = ServerPlace(f"http://{address}")
            return


def _find_or_create(plan: ServerPlan) -> Any:
    """The actor of a replica."""
    import ray

    actor: Any = ray.remote(ServerActor)
    return actor.options(
        name=f"zerowait-judge-{plan.title}",
        get_if_exists=True,
        num_cpus=0,
        num_gpus=plan.settings.gpus_each,
        max_concurrency=1000,
    ).remote(plan)


def _router_of(worker: Any) -> str | None:
    """The address that verl has given to one of its reward loop workers."""
    address: str | None = worker.reward_router_address
    return address


async def _answer(reference: Any, timeout_s: float) -> Any:
    """What an actor's method returns; errors that it raises are raised here.

    Raises:
        ray.exceptions.RayError: the actor is gone, or was silent for `timeout_s`.
    """
    import ray

    answer = asyncio.wrap_future(reference.future())
    try:
        await asyncio.wait({answer}, timeout=timeout_s)
        if not answer.done():
            raise ray.exceptions.GetTimeoutError(f"no answer in {timeout_s:g} s")
        return answer.result()
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, MissingError | ServerFailedError):
            raise error.cause from None
        raise
    finally:
        answer.cancel()


async def _end(actor: Any) -> None:
    """End a replica: its server first, then its actor."""
    import ray

    with contextlib.suppress(ray.exceptions.RayError):
        await _answer(actor.aclose.remote(), _CLOSING_S)
    with contextlib.suppress(ray.exceptions.RayError, ValueError):
        await asyncio.to_thread(ray.kill, actor)


def _log_error(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _LOG.error("a judge server is not followed any more", exc_info=task.exception())
