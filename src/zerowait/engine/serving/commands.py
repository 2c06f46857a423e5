"""The command line of each engine that serves a model, as of November 2026.

`COMMANDS` has a pure function for each engine; `check_program` finds the program that runs it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from zerowait.config.serve import ServeSettings, ServingEngine


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """What a server is to serve, and where.

    Args:
        model: folder or file of the weights, or a name on the Hub.
        name: by which requests name the model.
        host, port: where it listens.
    """

    model: str
    name: str
    host: str
    port: int


class MissingError(Exception):
    """The program or the weights of a server are not there.

    Args:
        key: of the settings that names what is missing.
        problem: the message, behind the key.
    """

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(key, problem)  # both, or it does not survive pickling
        self.key = key
        self.problem = problem


def vllm_command(settings: ServeSettings, listening: Listening) -> list[str]:
    """The arguments of ``vllm``."""
    return [
        *("serve", listening.model, "--served-model-name", listening.name),
        *("--host", listening.host, "--port", str(listening.port)),
        *_parallel(settings, "tensor-parallel-size", ("tensor-parallel-size", "tp")),
        *_unless_given(settings, "uvicorn-log-level", "warning"),  # no line for each request
        *options(settings.args),
    ]


def sglang_command(settings: ServeSettings, listening: Listening) -> list[str]:
    """The arguments of ``python -m sglang.launch_server``."""
    return [
        *("--model-path", listening.model, "--served-model-name", listening.name),
        *("--host", listening.host, "--port", str(listening.port)),
        *_parallel(settings, "tp-size", ("tp-size", "tensor-parallel-size", "tp")),
        *_unless_given(settings, "log-level-http", "warning"),
        *options(settings.args),
    ]


def llama_cpp_command(settings: ServeSettings, listening: Listening) -> list[str]:
    """The arguments of ``llama-server``, which xllamacpp's server takes as well."""
    layers = "n-gpu-layers"
    on_gpu = settings.gpus_each > 0 and not _has(settings.args, (layers, "gpu-layers", "ngl"))
    return [
        *("--model", listening.model, "--alias", listening.name),
        *("--host", listening.host, "--port", str(listening.port)),
        *([f"--{layers}", "999"] if on_gpu else []),
        *options(settings.args),
    ]


def transformers_command(settings: ServeSettings, listening: Listening) -> list[str]:
    """The arguments of ``transformers``; its server knows the model by its path only."""
    on_cpu = settings.gpus_each == 0 and "device" not in settings.args
    return [
        *("serve", listening.model, "--host", listening.host, "--port", str(listening.port)),
        *(["--device", "cpu"] if on_cpu else []),
        *_unless_given(settings, "log-level", "error"),
        *options(settings.args),
    ]


COMMANDS: Final[dict[ServingEngine, Callable[[ServeSettings, Listening], list[str]]]] = {
    "vllm": vllm_command,
    "sglang": sglang_command,
    "llama_cpp": llama_cpp_command,
    "transformers": transformers_command,
}

_MODULES: Final[dict[ServingEngine, tuple[str, str]]] = {
    "vllm": ("vllm", "vllm.entrypoints.cli.main"),
    "sglang": ("sglang", "sglang.launch_server"),
    "llama_cpp": ("xllamacpp", "zerowait.engine.serving.llama_cpp"),
    "transformers": ("transformers", "transformers.cli.transformers"),
}
"""The package of each engine, and the module that is run."""

_PROGRAMS: Final[dict[ServingEngine, str]] = {
    "vllm": "vllm",
    "llama_cpp": "llama-server",
    "transformers": "transformers",
}
"""Programs that do the same where the package is not installed beside zerowait."""

_INSTALL: Final[dict[ServingEngine, str]] = {
    "vllm": "pip install vllm",
    "sglang": "pip install 'sglang[all]'",
    "llama_cpp": "pip install xllamacpp (or put llama-server on the PATH)",
    "transformers": "pip install 'transformers[serving]'",
}
_OF_TRANSFORMERS: Final = ("fastapi", "uvicorn", "openai", "pydantic")
"""What ``transformers serve`` imports besides."""


def options(args: Mapping[str, Any]) -> list[str]:
    """Options of a command line.

    >>> options({"max_model_len": 8192, "enforce-eager": True, "enable-prefix-caching": False})
    ['--max-model-len', '8192', '--enforce-eager', '--no-enable-prefix-caching']
    >>> options({"limit-mm-per-prompt": {"image": 2}, "lora-modules": ["a", "b"]})
    ['--limit-mm-per-prompt', '{"image": 2}', '--lora-modules', 'a', 'b']
    """
    found: list[str] = []
    for key, value in args.items():
        name = f"{'-' if len(key) == 1 else '--'}{key.replace('_', '-')}"
        match value:
            case True:
                found.append(name)
            case False:
                found.append(name.replace("--", "--no-", 1))
            case list():
                found += [name, *map(str, value)]
            case dict():
                found += [name, json.dumps(value)]
            case _:
                found += [name, str(value)]
    return found


def program_of(engine: ServingEngine) -> list[str] | None:
    """How the engine is started on this machine; None: it is not installed.

    The package beside zerowait is preferred to a program on the PATH, which may be another one's.
    A llama-server comes first: unlike xllamacpp's wheel, it may have been built for the GPU here.
    """
    package, module = _MODULES[engine]
    if engine == "llama_cpp" and (built := shutil.which("llama-server")):
        return [built]
    if find_spec(package) is not None and (
        engine != "transformers" or all(find_spec(name) for name in _OF_TRANSFORMERS)
    ):
        return [sys.executable, "-m", module]
    program = shutil.which(_PROGRAMS[engine]) if engine in _PROGRAMS else None
    return None if program is None else [program]


def weights_of(settings: ServeSettings, base: Path) -> str:
    """The weights as a server takes them: an absolute path, or a name on the Hub.

    Args:
        settings: name them.
        base: the folder that relative paths start from.

    Raises:
        MissingError: they are not there.
    """
    path = Path(os.path.abspath(base / Path(settings.model).expanduser()))  # noqa: PTH100
    if settings.engine == "llama_cpp":
        if not path.is_file():
            raise MissingError("model", f"is {settings.model}, and there is no GGUF file {path}")
        return str(path)
    if path.is_file() and path.suffix == ".gguf" and settings.engine != "transformers":
        return str(path)
    if path.is_dir():
        if not (path / "config.json").is_file() and not (path / "params.json").is_file():
            raise MissingError("model", f"is {path}, which has no config.json: no model is there")
        return str(path)
    is_hub_name = settings.model.count("/") == 1 and not settings.model.startswith((".", "/", "~"))
    if not is_hub_name or os.environ.get("HF_HUB_OFFLINE") == "1":
        raise MissingError("model", f"is {settings.model}, and there is no folder {path}")
    return settings.model


def check_program(settings: ServeSettings) -> list[str]:
    """The program that serves, as `program_of`.

    Raises:
        MissingError: it is not installed on this machine; says how it is.
    """
    program = program_of(settings.engine)
    if program is None:
        how = _INSTALL[settings.engine]
        raise MissingError("engine", f"is {settings.engine}, which is not installed here: {how}")
    return program


def _parallel(settings: ServeSettings, option: str, known: Sequence[str]) -> list[str]:
    """The option that spreads a model over the GPUs of a replica, unless `args` says how."""
    by_hand = (*known, "pipeline-parallel-size", "pp-size", "data-parallel-size", "dp-size")
    if settings.gpus_each <= 1 or _has(settings.args, by_hand):
        return []
    return [f"--{option}", str(settings.gpus_each)]


def _unless_given(settings: ServeSettings, option: str, value: str) -> list[str]:
    return [] if _has(settings.args, (option,)) else [f"--{option}", value]


def _has(args: Mapping[str, Any], names: Sequence[str]) -> bool:
    return any(name.replace("_", "-") in names for name in args)
