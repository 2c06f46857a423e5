"""What is checked before any model is loaded, each with one clear line."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from zerowait.config import RewardConfig
from zerowait.engine.plan import compile_plan, credentials
from zerowait.errors import ConfigError

_CONNECT_S = 5.0


def check_reward(config: RewardConfig, environ: Mapping[str, str] = os.environ) -> None:
    """Raise a ConfigError unless every name resolves, every key is set and every judge answers."""
    compile_plan(config)
    credentials(config, environ)
    for name, judge in config.judges.items():
        for index, endpoint in enumerate(judge.endpoints):
            problem = unreachable(endpoint.base_url)
            if problem:
                config.fail(
                    ("judges", name, "endpoints", index, "base_url"),
                    f"{endpoint.base_url} cannot be reached: {problem}",
                )


def unreachable(url: str) -> str | None:
    """Why no connection to the URL's host and port can be made; None when one can."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=_CONNECT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def check_model(path: Path, text: str) -> None:
    """Raise a ConfigError when a model's folder is none; a hub's name is left to the trainer."""
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ConfigError(f"model.path {text}: there is no config.json in {path}")
        return
    looks_like_a_hub_name = text.count("/") == 1 and not text.startswith((".", "/", "~"))
    if not looks_like_a_hub_name or os.environ.get("HF_HUB_OFFLINE") == "1":
        raise ConfigError(f"model.path {text}: there is no folder {path}")
