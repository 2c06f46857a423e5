"""What decides the rewards of a file, as one digest: a changed rubric or rule is another task."""

from __future__ import annotations

import hashlib
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zerowait import __version__
from zerowait.cli.rows import encoded
from zerowait.config import RewardConfig
from zerowait.engine.plan import RuleStep, compile_plan


def task_of(config: RewardConfig, *, config_file: Path, key: str, data: Path) -> str:
    """The digest of everything that decides the rewards of the rows in `data`.

    Args:
        config: what was read at `key` of `config_file`.
        config_file: its bytes count, and those of what it names: rubrics, schemas, the modules of
            functions that the user wrote and what they load from beside them.
        key: the part of `config_file`, and all else of the command that changes a sample.
        data: the rows.

    Raises:
        ConfigError: a name in the configuration does not resolve.
    """
    plan = compile_plan(config)
    rubrics = sorted((name, rubric.version) for name, rubric in plan.judges.rubrics.items())
    schemas = [judge.verdict.schema for judge in config.judges.values()]
    files = [config.base / schema for schema in schemas if schema is not None]
    for component in config.components.values():
        target = getattr(component, "scorer", "")
        for module in _modules((target, getattr(component, "options", {}))):
            files += _sources(module)
    options = [encoded(step.options) for step in plan.steps if isinstance(step, RuleStep)]
    parts = (
        __version__,
        key,
        rubrics,
        options,  # with what their files hold
        [digest(file) for file in (data, config_file, *dict.fromkeys(files))],
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def digest(path: Path) -> str:
    """The sha256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _modules(tree: Any) -> Iterator[str]:
    """The loaded modules of every ``module:function`` in a component."""
    if isinstance(tree, str):
        module, colon, _ = tree.partition(":")
        if colon and module in sys.modules:
            yield module
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from _modules(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _modules(value)


def _sources(module: str) -> list[Path]:
    """The files of the module and, unless it was installed, of what it loaded from its folder."""
    own = _file(sys.modules[module])
    if own is None:
        return []
    installed = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib")}
    if any(own.is_relative_to(folder) for folder in installed):
        return [own]
    loaded = {_file(other) for other in list(sys.modules.values())}
    return sorted({own, *(file for file in loaded if file and file.is_relative_to(own.parent))})


def _file(module: Any) -> Path | None:
    name = getattr(module, "__file__", None)
    path = Path(name) if isinstance(name, str) else None
    return path if path is not None and path.is_file() else None
