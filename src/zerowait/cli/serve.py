"""``zerowait serve``: a reward server for trainers of this machine, or of others with a token."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from zerowait.cli.app import app
from zerowait.client import Secret
from zerowait.engine.portal import new_loop
from zerowait.errors import ConfigError

_MOST_MEBIBYTES = 2**20


@app.command()
def serve(  # noqa: PLR0913, PLR0917 - typer reads options from parameters
    config: Annotated[
        str, typer.Option("--config", "-c", help="reward.yaml, or recipe.yaml#reward.")
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on; other than loopback only with a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes any free port.")] = 8002,
    token_env: Annotated[
        str | None, typer.Option(help="Environment variable with the token.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="Folder that gets every reward and judgement.")
    ] = None,
    on_abstain: Annotated[
        str, typer.Option(help="/get_reward for an abstention: error, neutral or a number.")
    ] = "error",
    body_s: Annotated[float, typer.Option(help="Seconds for reading a body.")] = 120,
    deadline_s: Annotated[float, typer.Option(help="Seconds for answering a request.")] = 1800,
    drain_s: Annotated[float, typer.Option(help="Seconds for requests in flight.")] = 30,
    max_body_mb: Annotated[float, typer.Option(help="Largest request in MiB.")] = 64,
) -> int:
    """Serve rewards over HTTP until interrupted: /v1/score, /get_reward, /metrics, /healthz."""
    from zerowait.engine.garbage_collection import collect_rarely
    from zerowait.hub.http.service import serve_forever
    from zerowait.hub.http.settings import ServiceSettings

    settings = ServiceSettings(
        host=host,
        port=port,
        token=None if token_env is None else token_of(token_env),
        max_body_bytes=_bytes(max_body_mb),
        body_s=body_s,
        deadline_s=deadline_s,
        drain_s=drain_s,
        on_abstain=_number(on_abstain),
    )
    collect_rarely()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serve_forever(config, settings, record=record, on_ready=_print_url))
    return 0


def token_of(name: str) -> Secret:
    """The token in the environment variable that ``--token-env`` names.

    Raises:
        ConfigError: the variable is not set.
    """
    text = os.environ.get(name, "").strip()
    if not text:
        raise ConfigError(f"--token-env {name}: the environment variable {name} is not set")
    return Secret(text)


def _bytes(max_body_mb: float) -> int:
    if not 0 < max_body_mb <= _MOST_MEBIBYTES:
        raise ConfigError(
            f"--max-body-mb {max_body_mb:g}: must be greater than 0, and at most {_MOST_MEBIBYTES}"
        )
    return int(max_body_mb * 2**20)


def _number(on_abstain: str) -> float | Literal["neutral"] | None:
    if on_abstain == "error":
        return None
    if on_abstain == "neutral":
        return "neutral"
    try:
        return float(on_abstain)
    except ValueError:
        what = f"--on-abstain {on_abstain}"
        raise ConfigError(f"{what}: must be error, neutral or a number") from None


def _print_url(url: str) -> None:
    print(f"rewards are served at {url}", flush=True)
