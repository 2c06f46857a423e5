"""A YAML document that remembers where each of its values was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import yaml

from zerowait.errors import ConfigError, did_you_mean

KeyPath = tuple[str | int, ...]


class Source:
    """A parsed document with the line of every key, so that an error can point at it.

    Args:
        name: how errors call it: a file name, or ``reward`` for a mapping.
        tree: the parsed value.
        lines: 1-based line of each key path; empty for a mapping.
    """

    def __init__(self, name: str, tree: Any, lines: dict[KeyPath, int], base: Path) -> None:
        self.name = name
        self.tree = tree
        self.base = base
        self._lines = lines

    def fail(self, path: KeyPath, problem: str) -> NoReturn:
        """Raise a ConfigError for `path`: ``reward.yaml:12: components.answer <problem>``."""
        raise ConfigError(self.says(path, problem))

    def says(self, path: KeyPath, problem: str) -> str:
        """`problem` behind the file, the line and the key path it is about."""
        where, known = path, self._lines.get(path)
        while known is None and where:
            where = where[:-1]
            known = self._lines.get(where)
        place = f"{self.name}:{known}" if known is not None else self.name
        key = spell(path)
        return f"{place}: {key} {problem}" if key else f"{place}: {problem}"

    def unknown_key(self, path: KeyPath, key: object, known: list[str]) -> NoReturn:
        """Raise the error for a key that does not exist, with the nearest one that does."""
        what = spell(path) or "it"
        place = self.says((*path, str(key)), "").split(": ", 1)[0]
        raise ConfigError(f"{place}: {what} has no key {key!r}{did_you_mean(str(key), known)}")


def spell(path: KeyPath) -> str:
    """The key path as people write it.

    >>> spell(("judges", "quality", "endpoints", 0, "model"))
    'judges.quality.endpoints[0].model'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def read_yaml(path: Path) -> Source:
    """The document in `path`.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or says one key twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {_reason(error)}") from None
    return parse_yaml(text, name=str(path), base=path.parent)


def parse_yaml(text: str, *, name: str, base: Path) -> Source:
    """The document in `text`, called `name` in errors."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        lines: dict[KeyPath, int] = {}
        if node is not None:
            _walk(node, (), lines, name)
        tree = loader.construct_document(node) if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{name}{line}: is not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: is not YAML: {error}") from None
    finally:
        loader.dispose()
    return Source(name, tree, lines, base)


def _walk(node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int], name: str) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*path, str(key.value))
            line = key.start_mark.line + 1
            if inner in lines:
                raise ConfigError(f"{name}:{line}: {spell(inner)} is given twice")
            lines[inner] = line
            _walk(value, inner, lines, name)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _walk(value, (*path, index), lines, name)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
