"""The servers of a configuration's judges on this machine, and requests to where they listen."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self
from urllib.parse import urlsplit

import msgspec

from zerowait.client import Reply, Request, Transport, TransportError
from zerowait.config import RewardConfig
from zerowait.config.endpoint import VERL, Endpoint
from zerowait.config.source import KeyPath
from zerowait.engine.serving.commands import MissingError, check_program, weights_of
from zerowait.engine.serving.process import (
    ServerFailedError,
    ServerPlace,
    ServerPlan,
    ServerProcess,
)
from zerowait.errors import ConfigError
from zerowait.types import FailureKind

LOGS: Final = "judge_servers"
"""The folder of the servers' logs, in the folder of a run."""

_DEVICE: Final = re.compile(r"nvidia\d+")


class ServedEndpoint(msgspec.Struct, frozen=True):
    """An endpoint whose servers are started for the job.

    Args:
        endpoint: as it is configured.
        at: its key path.
    """

    endpoint: Endpoint
    at: KeyPath


class JudgeServers(Protocol):
    """Servers of judges, which are there inside ``async with``."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def place(self, host: str) -> ServerPlace | str:
        """Where the replica of this name listens now, or why it does not."""
        ...

    async def wait_ready(self) -> None:
        """Wait until each server has answered once.

        Raises:
            ConfigError: one cannot be started; the end of its log is in the message.
        """
        ...


def served_endpoints(config: RewardConfig) -> list[ServedEndpoint]:
    """The endpoints with `serve`; of several with the same settings, the first."""
    found: dict[str, ServedEndpoint] = {}
    for name, judge in config.judges.items():
        for index, endpoint in enumerate(judge.endpoints):
            if endpoint.serve is not None:
                at = ("judges", name, "endpoints", index)
                found.setdefault(endpoint.serve.host(0), ServedEndpoint(endpoint, at))
    return list(found.values())


def needs_servers(config: RewardConfig) -> bool:
    """Whether a judge is asked at servers whose address is known only when they run."""
    endpoints = [endpoint for judge in config.judges.values() for endpoint in judge.endpoints]
    return any(endpoint.serve is not None or endpoint.is_verls for endpoint in endpoints)


def gpus_of(config: RewardConfig) -> int:
    """GPUs that the served judges of a configuration need in all."""
    serves = [served.endpoint.serve for served in served_endpoints(config)]
    return sum(serve.gpus_each * serve.replicas for serve in serves if serve is not None)


def check_servers(config: RewardConfig, *, here: bool) -> None:
    """Raise a ConfigError for served judges whose weights, program or GPUs are not there.

    Args:
        config: of the rewards.
        here: whether they run on this machine; else only the weights are looked for.
    """
    free = len(visible_gpus()) if here else 0
    for served in served_endpoints(config):
        serve = served.endpoint.serve
        assert serve is not None  # noqa: S101 - it is one of those
        try:
            weights_of(serve, config.base)
            if here:
                check_program(serve)
        except MissingError as missing:
            config.fail((*served.at, "serve", missing.key), missing.problem)
        wanted = serve.gpus_each * serve.replicas
        if here and wanted > free:
            config.fail(
                (*served.at, "serve", "gpus"),
                f"is {serve.gpus_each}, times {serve.replicas} replicas, and this machine has "
                f"{free} GPUs left for them (CUDA_VISIBLE_DEVICES)",
            )
        free -= wanted


def server_plans(
    config: RewardConfig, served: ServedEndpoint, *, folder: Path, gpus: list[str] | None
) -> dict[str, ServerPlan]:
    """What each replica of an endpoint serves, by the name that stands for it in URLs.

    Args:
        config: of the rewards.
        served: the endpoint.
        folder: of the logs.
        gpus: those of this machine, from which each replica takes its own; None: the process that
            starts it has been given some.

    Raises:
        ConfigError: the weights are not there.
    """
    serve = served.endpoint.serve
    assert serve is not None  # noqa: S101 - it is one of those
    try:
        weights = weights_of(serve, config.base)
    except MissingError as missing:
        config.fail((*served.at, "serve", missing.key), missing.problem)
    plans: dict[str, ServerPlan] = {}
    for index in range(serve.replicas):
        host = serve.host(index)
        environment: dict[str, str] = {}
        if gpus is not None or not serve.gpus_each:
            own = [] if gpus is None else [gpus.pop(0) for _ in range(serve.gpus_each)]
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(own)
        plans[host] = ServerPlan(
            settings=serve,
            title=host.removesuffix(".served"),
            weights=weights,
            name=served.endpoint.model,
            folder=folder,
            environment=environment,
        )
    return plans


def start_failure(config: RewardConfig, served: ServedEndpoint, error: Exception) -> ConfigError:
    """The error for a server that did not start."""
    if isinstance(error, MissingError):
        return ConfigError(
            config.source.message((*config.at, *served.at, "serve", error.key), error.problem)
        )
    at = (*config.at, *served.at, "serve")
    return ConfigError(config.source.message(at, f"did not start: the server {error}"))


class LocalServers:
    """The servers of a configuration's judges as child processes; they end with this process.

    Opened and closed with ``async with``: inside it each has answered.

    Args:
        config: of the rewards.
        folder: of the servers' logs; None: a temporary one, which stays if a server fails.
    """

    def __init__(self, config: RewardConfig, *, folder: Path | None = None) -> None:
        self._config = config
        self._folder = folder
        self._is_temporary = folder is None
        self._were_ready = False
        self._processes: dict[str, ServerProcess] = {}
        self._served: dict[str, ServedEndpoint] = {}

    async def __aenter__(self) -> Self:
        self._refuse_verls()
        check_servers(self._config, here=True)
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="zerowait-judge-"))
        self._folder.mkdir(parents=True, exist_ok=True)
        gpus = visible_gpus()
        try:
            for served in served_endpoints(self._config):
                plans = server_plans(self._config, served, folder=self._folder, gpus=gpus)
                for host, plan in plans.items():
                    process = self._processes[host] = ServerProcess(plan)
                    self._served[host] = served
                    process.start()
            await self.wait_ready()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close()
        if self._is_temporary and self._folder is not None and error is None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def place(self, host: str) -> ServerPlace | str:
        """See `JudgeServers.place`."""
        process = self._processes[host]
        return process.place or process.problem

    async def wait_ready(self) -> None:
        """See `JudgeServers.wait_ready`."""
        if self._were_ready:
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                for host in self._processes:
                    tasks.create_task(self._wait_for(host))
        except* ConfigError as errors:
            raise errors.exceptions[0] from None
        self._were_ready = True

    async def _wait_for(self, host: str) -> None:
        try:
            await self._processes[host].wait_ready()
        except ServerFailedError as error:
            raise start_failure(self._config, self._served[host], error) from None

    async def _close(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for process in self._processes.values():
                tasks.create_task(process.aclose())

    def _refuse_verls(self) -> None:
        for name, judge in self._config.judges.items():
            for index, endpoint in enumerate(judge.endpoints):
                if endpoint.is_verls:
                    self._config.fail(
                        ("judges", name, "endpoints", index, "base_url"),
                        f"is {VERL}, the reward model that verl starts for a training, and this is "
                        "none: give a URL, or serve: {engine: ..., model: ...}",
                    )


class ServedTransport:
    """Sends requests to replicas where they listen now, and all others as they are.

    Args:
        transport: what sends; closed with this.
        servers: know the places.
    """

    def __init__(self, transport: Transport, servers: JudgeServers) -> None:
        self._transport = transport
        self._servers = servers
        self._hosts: dict[str, str | None] = {}

    async def send(self, request: Request, *, timeout_s: float) -> Reply:
        """The whole reply to `request`; see `zerowait.client.transport.Transport`."""
        host = self._host(request.url)
        if host is None:
            return await self._transport.send(request, timeout_s=timeout_s)
        place = self._servers.place(host)
        if isinstance(place, str):
            why = f"the judge's server {host} does not run: {place}"
            raise TransportError(FailureKind.UNREACHABLE, why, sent=False)
        url = place.url + request.url.removeprefix(f"http://{host}")
        body = request.body
        if place.model is not None:
            body = msgspec.json.encode(msgspec.json.decode(body) | {"model": place.model})
        return await self._transport.send(Request(url, request.headers, body), timeout_s=timeout_s)

    async def aclose(self) -> None:
        """Close every connection. Idempotent."""
        await self._transport.aclose()

    def _host(self, url: str) -> str | None:
        """The replica's name in `url`, if it is one."""
        if url not in self._hosts:
            host = urlsplit(url).hostname or ""
            self._hosts[url] = host if host.endswith((".served", ".verl")) else None
        return self._hosts[url]


def visible_gpus(environ: Mapping[str, str] | None = None) -> list[str]:
    """The GPUs that processes of this one may use, as ``CUDA_VISIBLE_DEVICES`` names them.

    >>> visible_gpus({"CUDA_VISIBLE_DEVICES": "3, 5"}), visible_gpus({"CUDA_VISIBLE_DEVICES": ""})
    (['3', '5'], [])
    """
    given = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip()]
    found = sorted(int(each.name[6:]) for each in Path("/dev").glob("nvidia*") if _is_gpu(each))
    return [str(number) for number in found]


def _is_gpu(device: Path) -> bool:
    return _DEVICE.fullmatch(device.name) is not None
