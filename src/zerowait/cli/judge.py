"""``zerowait judge``: serve a judge: a fake one with faults, a small real model, or one's own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
import typer
import yaml

from zerowait.cli.app import app
from zerowait.config.serve import SERVING_ENGINES, ServeSettings
from zerowait.errors import ConfigError, ZerowaitError, did_you_mean

_OnReady: TypeAlias = Callable[[str], None]
_WEIGHTS = ("minilm", "smollm2")


@app.command()
def judge(  # noqa: PLR0913, PLR0917 - typer reads options from parameters
    fake: Annotated[
        bool, typer.Option("--fake", help="A fake judge: verdicts, latency and faults by script.")
    ] = False,
    script: Annotated[
        Path | None, typer.Option("--script", help="YAML of latency, capacity and faults.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option("--weights", help="A real model: minilm or smollm2.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option("--engine", help="Serve --model by vllm, sglang, llama_cpp or transformers."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Folder or GGUF file, or a name on the Hub.")
    ] = None,
    replicas: Annotated[int, typer.Option(help="Servers, at --port and the ports after it.")] = 1,
    gpus: Annotated[
        int | None, typer.Option(help="Of each server; default: 1 for vllm and sglang, else 0.")
    ] = None,
    arg: Annotated[
        list[str] | None, typer.Option("--arg", help="An option of the engine: max-model-len=8192.")
    ] = None,
    ready_timeout_s: Annotated[
        float, typer.Option(help="Seconds until a server of --engine has to answer.")
    ] = 900,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")] = 8001,
) -> int:
    """Serve a judge with OpenAI's chat completions API until interrupted."""
    if [fake, weights is not None, engine is not None].count(True) != 1:
        raise ConfigError(
            "give one of --fake, --weights minilm|smollm2, and --engine "
            f"{'|'.join(SERVING_ENGINES)} with --model"
        )
    if script is not None and not fake:
        raise ConfigError("--script goes with --fake")
    if weights is not None and weights not in _WEIGHTS:
        raise ConfigError(f"--weights {weights}: must be one of {', '.join(_WEIGHTS)}")
    if engine is None and (model is not None or arg or replicas != 1 or gpus is not None):
        raise ConfigError("--model, --replicas, --gpus and --arg go with --engine")
    if engine is not None:
        settings = _settings(engine, model, replicas, gpus, arg or [], ready_timeout_s)
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_own(settings, host, port))
        return 0
    listens = False

    def ready(url: str) -> None:
        nonlocal listens
        listens = True
        print(f"a judge answers at {url}", flush=True)

    serving = _fake(script, host, port, ready) if fake else _real(str(weights), host, port, ready)
    with contextlib.suppress(KeyboardInterrupt):
        try:
            asyncio.run(serving)
        except OSError as error:
            if listens:  # not an error of the port: standard output may be closed, for one
                raise
            raise _no_port(host, port, _reason(error)) from None
    return 0


async def _fake(script: Path | None, host: str, port: int, ready: _OnReady) -> None:
    from zerowait.testing import Script, load_script, serve_forever

    loaded = Script() if script is None else load_script(script)
    seen = await serve_forever(loaded, host=host, port=port, on_ready=ready)
    faults = "".join(f", {name} {count}" for name, count in sorted(seen.by_fault.items()))
    print(
        f"{seen.requests} requests, {seen.answered} answered, {seen.distinct_bodies} different, "
        f"{seen.repeats} asked again although answered, {seen.peak_in_flight} at once{faults}",
        flush=True,
    )


async def _real(weights: str, host: str, port: int, ready: _OnReady) -> None:
    from zerowait.tiny_models.judge import serve_forever

    await serve_forever(weights=weights, host=host, port=port, ready=ready)


def _settings(  # noqa: PLR0917 - one for each option
    engine: str,
    model: str | None,
    replicas: int,
    gpus: int | None,
    arg: list[str],
    ready_timeout_s: float,
) -> ServeSettings:
    if engine not in SERVING_ENGINES:
        raise ConfigError(
            f"--engine {engine}: there is no such engine{did_you_mean(engine, SERVING_ENGINES)}"
        )
    if model is None:
        raise ConfigError("--engine needs --model: a folder, a GGUF file, or a name on the Hub")
    given: dict[str, Any] = {}
    for text in arg:
        name, equals, value = text.partition("=")
        try:
            given[name.lstrip("-")] = yaml.safe_load(value) if equals else True
        except yaml.YAMLError:
            given[name.lstrip("-")] = value
    fields = {"engine": engine, "model": model, "replicas": replicas, "gpus": gpus, "args": given}
    try:
        return msgspec.convert(fields | {"ready_timeout_s": ready_timeout_s}, ServeSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"--{str(error).partition(' - at')[0]}") from None


async def _own(settings: ServeSettings, host: str, port: int) -> None:
    """Serve a model by processes of an engine until cancelled."""
    from zerowait.engine.serving.commands import MissingError, check_program, weights_of
    from zerowait.engine.serving.process import (
        ServerFailedError,
        ServerPlan,
        ServerProcess,
        free_port,
    )
    from zerowait.engine.serving.servers import visible_gpus

    try:
        weights = weights_of(settings, Path())
        check_program(settings)
    except MissingError as missing:
        raise ConfigError(f"--{missing.key} {missing.problem}") from None
    free, wanted = visible_gpus(), settings.gpus_each
    if wanted * settings.replicas > len(free):
        raise ConfigError(
            f"--gpus {wanted}: {settings.replicas} servers with {wanted} each, and this machine "
            f"has {len(free)} (CUDA_VISIBLE_DEVICES)"
        )
    if port:
        _check_ports(host, range(port, port + settings.replicas))
    name = weights if settings.engine == "transformers" else settings.model
    folder = Path(tempfile.mkdtemp(prefix="zerowait-judge-"))
    servers = [
        ServerProcess(
            ServerPlan(
                settings=settings,
                title=f"server-{index}",
                weights=weights,
                name=name,
                host=host,
                port=port + index if port else free_port(host),
                folder=folder,
                environment={
                    "CUDA_VISIBLE_DEVICES": ",".join(free[index * wanted : (index + 1) * wanted])
                },
            )
        )
        for index in range(settings.replicas)
    ]
    try:
        for server in servers:
            server.start()
        places = [await server.wait_ready() for server in servers]
        for place in places:
            print(f"a judge answers at {place.url}/v1", flush=True)
        urls = ", ".join(f'{{base_url: "{place.url}/v1", model: {name}}}' for place in places)
        print(f"in reward.yaml: endpoints: [{urls}]; logs: {folder}", flush=True)
        problem = await _all_gone(servers)
    except ServerFailedError as error:
        raise ConfigError(f"--engine {settings.engine}: the server {error}") from None
    except asyncio.CancelledError:  # the usual end, after which no log is wanted
        await _close(servers)
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        await _close(servers)
    raise ZerowaitError(f"every server has died for good: it {problem}")


def _check_ports(host: str, ports: Iterable[int]) -> None:
    """Raise a ConfigError for a port that a server could not listen at.

    Whatever listens there already would answer in its place, perhaps for another model.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in ports:
        with socket.socket(family) as probe:
            # as servers do: connections that have just ended do not keep a port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                raise _no_port(host, port, _reason(error)) from None
            except OverflowError:
                raise _no_port(host, port, "ports end at 65535") from None


def _no_port(host: str, port: int, why: str) -> ConfigError:
    return ConfigError(f"--port {port}: no judge can listen at {host}:{port}: {why}")


async def _close(servers: Iterable[Any]) -> None:
    async with asyncio.TaskGroup() as closing:
        for server in servers:
            closing.create_task(server.aclose())


async def _all_gone(servers: Iterable[Any]) -> str:
    """Wait until every server was given up; why the last one was."""
    from zerowait.engine.serving.process import ServerFailedError

    problem = ""
    for server in servers:
        place = server.place
        while True:
            try:
                place = await server.wait_changed(place)
            except ServerFailedError as error:
                problem = str(error)
                break
    return problem


def _reason(error: OSError) -> str:
    """The system's message, since asyncio's repeats the address; resolver errors have their own."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else str(error.strerror or error)
