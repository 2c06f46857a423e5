"""``zerowait dashboard``: a live page over runs, with a browser of their samples."""

from __future__ import annotations

import asyncio
import secrets
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from zerowait.cli.app import app
from zerowait.cli.json_output import JsonOption, print_json
from zerowait.cli.serve import token_of
from zerowait.client import Secret


@app.command()
def dashboard(  # noqa: PLR0913, PLR0917 - typer reads options from parameters
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, side by side.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; other than loopback with a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes any free port.")] = 8003,
    token: Annotated[
        bool, typer.Option("--token", help="Ask for a token on loopback, too.")
    ] = False,
    token_env: Annotated[
        str | None, typer.Option(help="Environment variable with the token; else it is random.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Show runs while they grow: the report's charts, every sample, its judgements, your thumbs.

    A run may begin later. The address is printed, with the token where there is one.
    """
    from zerowait.hub.http.settings import is_loopback
    from zerowait.observe.dashboard import DashboardSettings, show_until_stopped

    secret = None
    if token_env is not None:
        secret = token_of(token_env)
    elif token or not is_loopback(host):
        secret = Secret(secrets.token_urlsafe(24))
    settings = DashboardSettings(host=host, port=port, token=secret)

    def ready(url: str) -> None:
        address = url if secret is None or token_env is not None else with_token(url, secret)
        if as_json:
            print_json({"url": url, "address": address, "runs": [str(run) for run in runs]})
            sys.stdout.flush()
        else:
            print(f"the dashboard is at {address}", flush=True)
        if open_page:
            webbrowser.open(address)

    asyncio.run(show_until_stopped(runs, settings, on_ready=ready))
    return 0


def with_token(url: str, token: Secret) -> str:
    """The address that logs a browser in."""
    return f"{url}/?token={token.reveal()}"
