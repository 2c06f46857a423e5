"""API keys of the judges' endpoints: from the configuration, or from environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping

from zerowait.client import Secret
from zerowait.config import RewardConfig
from zerowait.config.sandbox import RemoteSandboxSettings
from zerowait.config.source import KeyPath
from zerowait.errors import ConfigError


class _Environment:
    """Environment variables that a traceback with local variables does not show."""

    def __init__(self, variables: Mapping[str, str] | None) -> None:
        self._variables = os.environ if variables is None else variables

    def key(self, name: str) -> Secret | None:
        """The API key in the variable called `name`; None where it is not set, or blank.

        Raises:
            ConfigError: its value cannot be a key.
        """
        if not self._variables.get(name, "").strip():
            return None
        return Secret(self._variables[name])


def credentials(
    config: RewardConfig, environ: Mapping[str, str] | None = None
) -> dict[str, list[Secret | None]]:
    """The API key of each judge's endpoints, in their order; None where none is configured.

    Args:
        config: names the variables.
        environ: where they are looked up; None: the process's environment.

    Raises:
        ConfigError: a variable that should hold a key is not set; the message names it.
    """
    variables = _Environment(environ)
    del environ
    keys: dict[str, list[Secret | None]] = {}
    for name, judge in config.judges.items():
        keys[name] = []
        for index, endpoint in enumerate(judge.endpoints):
            key = None if endpoint.api_key is None else Secret(endpoint.api_key)
            at = ("judges", name, "endpoints", index, "api_key_env")
            if key is None and endpoint.api_key_env is not None:
                key = _key(config, endpoint.api_key_env, variables, at)
            keys[name].append(key)
    return keys


def sandbox_keys(
    config: RewardConfig,
    sandboxes: Mapping[RemoteSandboxSettings, str],
    environ: Mapping[str, str] | None = None,
) -> dict[RemoteSandboxSettings, Secret | None]:
    """The key of each remote sandbox; None where none is configured.

    Args:
        config: for errors.
        sandboxes: with the component that names each.
        environ: where variables are looked up; None: the process's environment.

    Raises:
        ConfigError: a variable that should hold a key is not set; the message names it.
    """
    variables = _Environment(environ)
    del environ
    keys: dict[RemoteSandboxSettings, Secret | None] = {}
    for settings, component in sandboxes.items():
        variable = settings.api_key_env
        at = ("components", component, "sandbox", "api_key_env")
        keys[settings] = None if variable is None else _key(config, variable, variables, at)
    return keys


def _key(  # noqa: RET503 - it ends in an error
    config: RewardConfig, variable: str, environ: _Environment, at: KeyPath
) -> Secret:
    """The API key in a variable; a ConfigError where it has none.

    The error does not repeat a name that may itself be a key, written in the wrong place.
    """
    key = None
    try:
        key = environ.key(variable)
    except ConfigError:
        config.fail(at, f"names {variable}, whose value is no key: it must be printable ASCII")
    if key is not None:
        return key
    if variable.isupper():
        config.fail(at, f"names the environment variable {variable}, which is not set")
    config.fail(
        at,
        "names an environment variable that is not set; it has to be the NAME of one, "
        "never the key itself",
    )
