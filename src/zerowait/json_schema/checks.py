"""What has to be right about a schema itself before any text is held against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zerowait.errors import ConfigError
from zerowait.json_schema.patterns import matcher

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DATA = frozenset(("const", "enum", "default", "examples"))
_BY_NAME = frozenset(
    ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
)
_SAME_PLACE = ("not", "if", "then", "else")
_SAME_PLACE_LISTS = ("allOf", "anyOf", "oneOf", "extends", "disallow")


def check_schema(schema: Mapping[str, Any], resolver: Any) -> None:
    """Nothing, for a schema that every text can be held against.

    Args:
        schema: it fits the schema of its draft.
        resolver: looks up references in it, as the package referencing does.

    Raises:
        ConfigError: it refers to something outside of itself, to nothing, or only to itself; a
            pattern is none; or it uses what cannot be checked safely.
    """
    seen: dict[int, Mapping[str, Any]] = {}
    _collect(schema, resolver, seen)
    for node in seen.values():
        if node is not schema:
            _check_embedded(node)
        for pattern in _patterns_of(node):
            matcher(pattern)
    keys = {key for node in seen.values() for key in node}
    if {"patternProperties", "unevaluatedProperties"} <= keys:
        raise ConfigError(
            "unevaluatedProperties beside patternProperties is not supported: say "
            "additionalProperties"
        )
    done: set[int] = set()
    for node in seen.values():
        _check_circles(node, resolver, [], done)


def _collect(node: Any, resolver: Any, seen: dict[int, Mapping[str, Any]]) -> None:
    """Put every schema that can be reached from `node` into `seen`, by its identity."""
    if isinstance(node, list):
        for inner in node:
            _collect(inner, resolver, seen)
    if not isinstance(node, Mapping) or id(node) in seen:
        return
    seen[id(node)] = node
    for key, inner in node.items():
        if key in _BY_NAME and isinstance(inner, Mapping):
            _collect(list(inner.values()), resolver, seen)
        elif key not in _DATA:
            _collect(inner, resolver, seen)
    for target in _targets(node, resolver):
        _collect(target, resolver, seen)


def _targets(node: Mapping[str, Any], resolver: Any) -> Iterator[Any]:
    from referencing.exceptions import Unresolvable

    for key in _REFERENCES:
        reference = node.get(key)
        if not isinstance(reference, str):
            continue
        if not reference.startswith("#"):
            raise ConfigError(
                f"{key} {reference!r} leads elsewhere, and nothing outside of the schema is read: "
                "copy that part under $defs"
            )
        try:
            yield resolver.lookup(reference).contents
        except Unresolvable:
            raise ConfigError(f"{key} {reference!r} leads nowhere") from None


def _check_embedded(node: Mapping[str, Any]) -> None:
    for key in ("$id", "$schema"):
        if isinstance(node.get(key), str):
            raise ConfigError(
                f"a schema inside of the schema has a {key} of its own, {node[key]!r}: leave it out"
            )


def _patterns_of(node: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(node.get("pattern"), str):
        yield node["pattern"]
    if isinstance(node.get("patternProperties"), Mapping):
        yield from node["patternProperties"]


def _check_circles(node: Any, resolver: Any, path: list[int], done: set[int]) -> None:
    """Raise where a schema applies itself to the very value that it is applied to."""
    if not isinstance(node, Mapping) or id(node) in done:
        return
    if id(node) in path:
        raise ConfigError("the references go around in a circle")
    path.append(id(node))
    for key in _SAME_PLACE:
        _check_circles(node.get(key), resolver, path, done)
    for key in _SAME_PLACE_LISTS:
        inner = node.get(key)
        for each in inner if isinstance(inner, list) else [inner]:
            _check_circles(each, resolver, path, done)
    for key in ("dependentSchemas", "dependencies"):
        inner = node.get(key)
        for each in inner.values() if isinstance(inner, Mapping) else ():
            _check_circles(each, resolver, path, done)
    for target in _targets(node, resolver):
        _check_circles(target, resolver, path, done)
    done.add(id(path.pop()))
