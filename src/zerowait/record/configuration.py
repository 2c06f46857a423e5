"""What a run's rewards were made of, kept beside its record so that runs can be told apart.

``reward.json`` holds what decides about rewards: components, judges with a hash of their rubrics'
text, panels and failure policies. It holds no endpoint, limit, cache or key, and is made of the
configuration; no run is started from it. A run that is continued by another configuration has its
earlier ones in ``configurations.jsonl``, since its earlier rows were scored by those.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from zerowait.config import Judge, RewardConfig
from zerowait.config.urls import shown_url
from zerowait.errors import DataError
from zerowait.record.lines import AppendOnlyFile, read_lines
from zerowait.record.rewards import REWARDS

CONFIGURATION: Final = "reward.json"
EARLIER_CONFIGURATIONS: Final = "configurations.jsonl"
_SECRET: Final = re.compile(
    r"api_?key|secret|passw|authorization|headers?$|proxy|cookie|(?:^|_)token$", re.IGNORECASE
)
_HASH_CHARS: Final = 12

_log = logging.getLogger(__name__)


class EarlierConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """One row of ``configurations.jsonl``: what ``reward.json`` held before.

    Args:
        until: Unix time in seconds at which another one took its place.
        reward: as `described` gives it; empty where ``reward.json`` could not be read.
    """

    until: float
    reward: dict[str, Any]


def described(config: RewardConfig) -> dict[str, Any]:
    """What of a configuration decides about rewards, as plain values without secrets."""
    parts = {
        "components": config.components,
        "judges": {name: _judge(judge, config.base) for name, judge in config.judges.items()},
        "panels": config.panels,
        "on_failure": config.on_failure,
    }
    found: dict[str, Any] = _without_secrets(
        msgspec.to_builtins(parts, enc_hook=str, str_keys=True)
    )
    return found


def keep_configuration(folder: Path, config: RewardConfig) -> None:
    """Write ``reward.json``; the one that scored the rows so far goes to ``configurations.jsonl``.

    Raises:
        OSError: it cannot be written.
    """
    body = msgspec.json.format(msgspec.json.encode(described(config)), indent=1)
    path = folder / CONFIGURATION
    if path.exists() and path.read_bytes() == body:
        return
    before = read_configuration(folder)
    has_rows = (folder / REWARDS).exists() and (folder / REWARDS).stat().st_size > 0
    if path.exists() and has_rows:
        file = AppendOnlyFile(folder / EARLIER_CONFIGURATIONS)
        try:
            earlier = EarlierConfiguration(until=time.time(), reward=before or {})
            file.write(msgspec.json.encode(earlier))
        finally:
            file.close()
    draft = folder / f".{CONFIGURATION}.{os.getpid()}"
    draft.touch(mode=0o600)
    draft.write_bytes(body)
    draft.replace(path)


def read_configuration(folder: Path) -> dict[str, Any] | None:
    """What `keep_configuration` wrote; None for a record without it, or where it is damaged."""
    path = folder / CONFIGURATION
    if not path.exists():
        return None
    try:
        found: dict[str, Any] = msgspec.json.decode(path.read_bytes(), type=dict)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        _log.warning("%s cannot be read, so that no change of it can be told: %s", path, error)
        return None
    return found


def earlier_configurations(folder: Path) -> list[EarlierConfiguration]:
    """Those that scored the record's rows before the one in ``reward.json`` did, oldest first.

    Lines that cannot be read are left out, and told: rewards can be compared without them.
    """
    path = folder / EARLIER_CONFIGURATIONS
    if not path.exists():
        return []
    try:
        return [line for _, line in read_lines(path, EarlierConfiguration)]
    except (OSError, DataError) as error:
        _log.warning("%s; earlier configurations are not known", error)
        return []


def _judge(judge: Judge, base: Path) -> dict[str, Any]:
    fields = ("max_tokens", "temperature", "parameters", "ask", "votes", "monitor", "images")
    verdict = msgspec.structs.asdict(judge.verdict)
    return {
        "model": judge.endpoints[0].model,
        "rubric": judge.rubric,
        "rubric_text": _text_hash(base / Path(judge.rubric).expanduser()),
        "verdict": {name: value for name, value in verdict.items() if value is not None},
        **{name: getattr(judge, name) for name in fields},
    }


def _text_hash(file: Path) -> str | None:
    """A hash of a rubric's file; None for a built-in one."""
    try:
        return sha256(file.read_bytes()).hexdigest()[:_HASH_CHARS]
    except OSError:
        return None


def _without_secrets(value: Any, *, secret: bool = False) -> Any:
    """The value without URLs' credentials, and without texts below a key that names a secret."""
    if isinstance(value, Mapping):
        return {
            key: _without_secrets(inner, secret=secret or bool(_SECRET.search(str(key))))
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_secrets(inner, secret=secret) for inner in value]
    if not isinstance(value, str):
        return value
    if secret:
        return "***"
    return shown_url(value) if "://" in value else value
