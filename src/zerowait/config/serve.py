"""Judges that zerowait serves itself: the engine, the weights, and how many servers."""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePath
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from zerowait.config.checks import json_only, positive

ServingEngine: TypeAlias = Literal["vllm", "sglang", "llama_cpp", "transformers"]
"""The programs that serve a model over HTTP."""

SERVING_ENGINES: Final[tuple[ServingEngine, ...]] = get_args(ServingEngine)

_ON_GPUS: Final = ("vllm", "sglang")
_OURS: Final = frozenset(
    ("host", "port", "model", "model-path", "served-model-name", "alias", "force-model", "api-key")
)
_OPTION: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_NO_LABEL: Final = re.compile(r"[^a-z0-9]+")
_LABEL_CHARS: Final = 32
_MOST_REPLICAS: Final = 1024


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``serve: {engine: ..., model: ...}``: servers that are started for the job, and end with it.

    Args:
        engine: the program that serves the model.
        model: a folder or file of weights, relative to the configuration, or a name on the Hub.
        gpus: of each replica; None: 1 for ``vllm`` and ``sglang``, else 0.
        replicas: servers; each is an endpoint of the judge, and they share its requests.
        args: further options of the engine's command: ``{max-model-len: 8192}`` is
            ``--max-model-len 8192``, true is ``--name``, false is ``--no-name``.
        ready_timeout_s: the longest that a server may take until it answers.
    """

    engine: ServingEngine
    model: str
    gpus: int | None = None
    replicas: int = 1
    args: dict[str, Any] = {}
    ready_timeout_s: float = 900.0

    def __post_init__(self) -> None:
        if not self.model.strip() or "\0" in self.model:
            raise ValueError("model must be a folder or a file of weights, or a name on the Hub")
        if self.gpus is not None and self.gpus < 0:
            raise ValueError(f"gpus must be at least 0, not {self.gpus}")
        if not 1 <= self.replicas <= _MOST_REPLICAS:
            raise ValueError(f"replicas must be from 1 to {_MOST_REPLICAS}, not {self.replicas}")
        positive("ready_timeout_s", self.ready_timeout_s)
        json_only("args", self.args)
        for name, value in self.args.items():
            if not _OPTION.fullmatch(name):
                raise ValueError(f"args has {name!r}: give options without dashes in front")
            if name.replace("_", "-") in _OURS:
                raise ValueError(f"args must leave {name} to zerowait, which sets it")
            if value is None:
                raise ValueError(f"args.{name} has no value: write true for an option without one")

    @property
    def gpus_each(self) -> int:
        """GPUs of each replica."""
        return int(self.engine in _ON_GPUS) if self.gpus is None else self.gpus

    def host(self, index: int) -> str:
        """The name that stands for a replica in URLs, wherever it listens now.

        Equal settings have equal names, so that judges that serve the same share the servers.

        >>> ServeSettings(engine="vllm", model="models/Qwen3-8B").host(0)
        'qwen3-8b-642ff7-0.served'
        """
        known = hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:6]
        words = _NO_LABEL.sub("-", PurePath(self.model).name.lower())[:_LABEL_CHARS].strip("-")
        return f"{words or 'model'}-{known}-{index}.served"
