"""``python -m zerowait.engine.serving.llama_cpp``: llama.cpp's server out of the package xllamacpp.

It takes the options of ``llama-server`` that a judge needs; any other is a field of xllamacpp's
``CommonParams`` by its own name, such as ``--n-ubatch 256``.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Final

import msgspec

_SLOTS: Final = 4
_CONTEXT_TOKENS: Final = 4096  # of each slot

_FIELDS: Final = {
    "ctx-size": "n_ctx",
    "c": "n_ctx",
    "parallel": "n_parallel",
    "np": "n_parallel",
    "batch-size": "n_batch",
    "ubatch-size": "n_ubatch",
    "gpu-layers": "n_gpu_layers",
    "ngl": "n_gpu_layers",
    "threads": "cpuparams.n_threads",
    "t": "cpuparams.n_threads",
    "threads-batch": "cpuparams_batch.n_threads",
    "threads-http": "n_threads_http",
}
"""The options of ``llama-server`` whose names differ from those of the fields."""


def serve_gguf(arguments: Sequence[str] | None = None) -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--alias", default="")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    given, rest = parser.parse_known_args(arguments)
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = given.model
    if given.alias:
        params.model_alias = {given.alias}
    params.hostnames, params.port = [given.host], given.port
    params.n_parallel, params.ui = _SLOTS, False
    params.n_ctx = 0
    for name, value in _pairs(rest):
        _set(params, name, value)
    if params.n_ctx == 0:
        params.n_ctx = _CONTEXT_TOKENS * params.n_parallel
    server = xllamacpp.Server(params)
    sys.stdout.write(f"serves {given.model} at {server.listening_address}\n")
    sys.stdout.flush()
    threading.Event().wait()


def _pairs(rest: Sequence[str]) -> list[tuple[str, Any]]:
    """The further options with their values.

    >>> _pairs(["--ctx-size", "8192", "--flag", "--no-warmup", "--rope-freq-scale", "-0.5"])
    [('ctx-size', 8192), ('flag', True), ('warmup', False), ('rope-freq-scale', -0.5)]
    """
    found: list[tuple[str, Any]] = []
    for text in rest:
        name = text.lstrip("-")
        if text.startswith("-") and name and not name[0].isdigit():
            is_off = name.startswith("no-")
            found.append((name.removeprefix("no-"), not is_off))
        elif found:
            found[-1] = found[-1][0], _value(text)
        else:
            raise SystemExit(f"{text}: an option with dashes was expected")
    return found


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode())
    except msgspec.DecodeError:
        return text


def _set(params: Any, name: str, value: Any) -> None:
    field = _FIELDS.get(name, name.replace("-", "_"))
    *inner, last = field.split(".")
    owner = params
    for part in inner:
        owner = getattr(owner, part)
    if not hasattr(owner, last):
        known = [*_FIELDS, *(each.replace("_", "-") for each in dir(params) if each[0] != "_")]
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean --{near[0]}?" if near else ""
        raise SystemExit(f"--{name}: neither an option nor a field of CommonParams{hint}")
    try:
        setattr(owner, last, value)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise SystemExit(f"--{name} {value}: {error}") from None


if __name__ == "__main__":
    serve_gguf()
