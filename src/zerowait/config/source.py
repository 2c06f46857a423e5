"""YAML documents that know the line of each key, for error messages."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import yaml

from zerowait.config.obfuscated_pickle import obfuscated
from zerowait.errors import ConfigError, did_you_mean

KeyPath = tuple[str | int, ...]

_TEXT = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"
# in capitals, as variables are: ${x} may be a formula, and ${trainer.n} is Hydra's
_VARIABLE = re.compile(r"(?P<escape>\$)?\$\{(?P<name>[A-Z_][A-Z0-9_]+)(?::-(?P<default>[^{}]*))?\}")
_NO_TEXT = re.compile(r"[\x00\ud800-\udfff]")


class Source:
    """A parsed document with the line of every key, so that an error can point at it.

    Args:
        name: its name in errors: a file name, or ``reward`` for a mapping.
        tree: the parsed value.
        lines: 1-based line of each key path; empty for a mapping.
        base: the folder that relative paths in it start from.
    """

    def __init__(self, name: str, tree: Any, lines: dict[KeyPath, int], base: Path) -> None:
        self.name = name
        self.tree = tree
        self.base = base
        self._lines = lines

    def __reduce__(self) -> tuple[Any, ...]:  # the document may hold a key
        return obfuscated(Source, self.name, self.tree, self._lines, self.base)

    def fail(self, path: KeyPath, problem: str | Exception) -> NoReturn:
        """Raise a ConfigError for `path`: ``reward.yaml:12: components.answer <problem>``.

        Args:
            path: of the key.
            problem: the rest of a sentence about the key, such as ``must be a number``; or an error
                whose message is a sentence of its own, which follows a colon.
        """
        raise ConfigError(self.message(path, problem))

    def message(self, path: KeyPath, problem: str | Exception) -> str:
        """An error message: file, line and key path, then `problem` as in `fail`."""
        where, known = path, self._lines.get(path)
        while known is None and where:
            where = where[:-1]
            known = self._lines.get(where)
        location = f"{self.name}:{known}" if known is not None else self.name
        key = path_text(path)
        if isinstance(problem, Exception):
            key += ":" * bool(key)
        return f"{location}: {key} {problem}" if key else f"{location}: {problem}"

    def unknown_key(
        self, path: KeyPath, key: object, known: list[str], *, hint: str = ""
    ) -> NoReturn:
        """Raise the error for a key that does not exist.

        Args:
            path: of the section in which it stands.
            key: that does not exist there.
            known: the keys that do, of which the error names the nearest.
            hint: the end of the message in place of that one.
        """
        what = path_text(path) or "it"
        location = self.message((*path, str(key)), "").split(": ", 1)[0]
        raise ConfigError(
            f"{location}: {what} has no key {key!r}{hint or did_you_mean(str(key), known)}"
        )


def path_text(path: KeyPath) -> str:
    """The key path as text.

    >>> path_text(("judges", "quality", "endpoints", 0, "model"))
    'judges.quality.endpoints[0].model'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def read_yaml(path: Path) -> Source:
    """The YAML document in the file `path`.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or has one key twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {_reason(error, path)}") from None
    return parse_yaml(text, name=str(path), base=path.parent)


def parse_yaml(text: str, *, name: str, base: Path) -> Source:
    """The YAML document in `text`.

    Args:
        text: of the document.
        name: its name in errors.
        base: the folder that relative paths in it start from.

    Raises:
        ConfigError: it is not YAML, or has one key twice.
    """
    try:
        tree, lines = _parsed(text, name)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{name}{line}: is not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:  # a character, or a date, that does not exist
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{name}: is not YAML: {reason}") from None
    except RecursionError:
        raise ConfigError(f"{name}: is nested too deeply") from None
    source = Source(name, tree, lines, base)
    refuse_extremes(source)
    return source


def refuse_extremes(source: Source) -> None:
    """Raise a ConfigError for a whole number beyond 64 bits, the character 0, or a lone surrogate.

    Neither the system nor JSON can represent these.
    """
    _refuse_extremes(source, source.tree, ())


def _refuse_extremes(source: Source, tree: Any, path: KeyPath) -> None:
    if isinstance(tree, int) and not -(2**63) <= tree < 2**63:
        source.fail(path, "is a number that is too large")
    if isinstance(tree, str) and (found := _NO_TEXT.search(tree)):  # it may hold a secret
        source.fail(path, f"holds the character U+{ord(found[0]):04X}, which no text has")
    if isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            _refuse_extremes(source, key, path)
            _refuse_extremes(source, value, (*path, key))


def _parsed(text: str, name: str) -> tuple[Any, dict[KeyPath, int]]:
    loader = yaml.SafeLoader(text)
    lines: dict[KeyPath, int] = {}
    try:
        node = loader.get_single_node()
        if node is None:
            return None, lines
        _note_lines(node, (), lines, (name,))
        _read_environment(node, loader, name)
        return loader.construct_document(node), lines
    finally:
        loader.dispose()


def _note_lines(
    node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int], inside: tuple[Any, ...]
) -> None:
    """Note the line of every key. `inside` is the document's name, and the nodes around `node`."""
    name = inside[0]
    if node in inside[1:]:
        line = node.start_mark.line + 1
        raise ConfigError(f"{name}:{line}: {path_text(path)} refers to what it is itself a part of")
    lines.setdefault(path, node.start_mark.line + 1)
    inside = (*inside, node)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                key.tag = _TEXT  # a key is a name: 1 and yes are names as well
            inner = (*path, str(key.value))
            line = key.start_mark.line + 1
            if inner in lines:
                raise ConfigError(f"{name}:{line}: {path_text(inner)} is given twice")
            lines[inner] = line
            _note_lines(value, inner, lines, inside)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _note_lines(value, (*path, index), lines, inside)


def _read_environment(node: yaml.Node, loader: yaml.SafeLoader, name: str) -> None:
    """Put the environment's values in place of ``${NAME}`` and ``${NAME:-default}`` in values.

    A value without quotes is read as what it then is: ``concurrency: ${SLOTS}`` is a number.
    """
    if isinstance(node, yaml.MappingNode):
        for _, value in node.value:
            _read_environment(value, loader, name)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _read_environment(value, loader, name)
    elif isinstance(node, yaml.ScalarNode) and "${" in node.value:
        line = node.start_mark.line + 1
        node.value = _VARIABLE.sub(lambda found: _of_environment(found, name, line), node.value)
        if node.style is None:
            node.tag = loader.resolve(  # type: ignore[no-untyped-call]
                yaml.ScalarNode, node.value, (True, False)
            )


def _of_environment(found: re.Match[str], name: str, line: int) -> str:
    """The value of the variable that was found; ``$${NAME}`` is the text ``${NAME}``."""
    if found["escape"]:
        return found[0][1:]
    value = os.environ.get(found["name"]) or found["default"]
    if value is None:
        raise ConfigError(
            f"{name}:{line}: ${{{found['name']}}}: the environment variable {found['name']} is not "
            f"set; give a default as ${{{found['name']}:-...}}, or write $${{ for the text itself"
        )
    return value


def _reason(error: Exception, path: Path) -> str:
    """Why `path` cannot be read; where there is none, the nearest file of its folder as well."""
    reason = getattr(error, "strerror", None) or str(error)
    if not isinstance(error, FileNotFoundError):
        return reason
    near = get_close_matches(path.name, [file.name for file in path.parent.glob("*.y*ml")], n=1)
    return f"{reason}; did you mean {str(path.with_name(near[0]))!r}?" if near else reason
