"""``zerowait judge``: serve a judge for tests: a fake one with faults, or a small real model."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from zerowait.cli.app import app
from zerowait.errors import ConfigError

_OnReady: TypeAlias = Callable[[str], None]
_WEIGHTS = ("minilm", "smollm2")


@app.command()
def judge(
    fake: Annotated[
        bool, typer.Option("--fake", help="A fake judge: verdicts, latency and faults by script.")
    ] = False,
    script: Annotated[
        Path | None, typer.Option("--script", help="YAML of latency, capacity and faults.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option("--weights", help="A real model: minilm or smollm2.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")] = 8001,
) -> int:
    """Serve a judge with OpenAI's chat completions API until interrupted."""
    if fake == (weights is not None):
        raise ConfigError("give either --fake or --weights minilm|smollm2")
    if script is not None and not fake:
        raise ConfigError("--script goes with --fake")
    if weights is not None and weights not in _WEIGHTS:
        raise ConfigError(f"--weights {weights}: must be one of {', '.join(_WEIGHTS)}")
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
            raise ConfigError(
                f"--port {port}: no judge can listen at {host}:{port}: {_reason(error)}"
            ) from None
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


def _reason(error: OSError) -> str:
    """The system's message, since asyncio's repeats the address; resolver errors have their own."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else str(error.strerror or error)
