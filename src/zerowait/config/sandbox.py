"""A remote sandbox: where programs run that are not run on this machine."""

from __future__ import annotations

import msgspec

from zerowait.config.endpoint import Api, Endpoint
from zerowait.config.urls import check_url

_PATH = "/run_code"


class RemoteSandboxSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``sandbox: {url: ...}``: a server that speaks SandboxFusion's HTTP API.

    Args:
        url: its base, or the full URL that ends with ``/run_code``.
        api_key_env: the environment variable with the key that is sent as a bearer token.
    """

    url: str
    api_key_env: str | None = None

    def __post_init__(self) -> None:
        check_url("url", self.url)
        _ = self.endpoint

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint to which programs are sent."""
        base = self.url.rstrip("/")
        full = base if base.endswith(_PATH) else base + _PATH
        return RunCodeEndpoint(base_url=full, model="run_code", api_key_env=self.api_key_env)


class RunCodeEndpoint(Endpoint, frozen=True, kw_only=True):
    """An endpoint that runs programs; requests go to its URL as they are."""

    @property
    def url(self) -> str:
        """The full URL."""
        return self.base_url

    @property
    def speaks(self) -> Api:
        """``chat``: what is sent needs no translation."""
        return "chat"
