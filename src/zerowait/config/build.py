"""Builds frozen structs from parts of a YAML document; errors name the key."""

from __future__ import annotations

from types import UnionType
from typing import Any, NoReturn, TypeVar, Union, get_args, get_origin

import msgspec

from zerowait.config.messages import (
    kind_of,
    locate,
    number_hint,
    plain_words,
    with_words,
    words_for,
)
from zerowait.config.source import KeyPath, Source
from zerowait.errors import did_you_mean

StructT = TypeVar("StructT", bound=msgspec.Struct)


def build(source: Source, at: KeyPath, kind: type[StructT]) -> StructT:
    """A `kind` from the mapping at key path `at`.

    Args:
        source: the document.
        at: key path in it.
        kind: the struct to build.

    Raises:
        ConfigError: no mapping, an unknown key, or a value that does not fit.
    """
    tree = tree_at(source, at)
    if not isinstance(tree, dict):
        source.fail(at, f"must be a mapping, not {kind_of(tree)}")
    tree = with_words(tree)
    _refuse_unknown_keys(source, at, tree, kind)
    return converted(source, at, tree, kind)


def converted(source: Source, at: KeyPath, tree: Any, kind: type[StructT]) -> StructT:
    """A `kind` from `tree`, which is the value at key path `at`.

    Args:
        source: the document, for errors.
        at: key path of `tree` in it.
        tree: what is converted.
        kind: the struct to build.

    Raises:
        ConfigError: a value does not fit; names its key, and what would fit.
    """
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        _fail(source, at, tree, kind, str(error))


def tree_at(source: Source, path: KeyPath) -> Any:
    """What `source` holds at `path`; a ConfigError when there is no such key."""
    tree: Any = source.tree
    at: Any
    for at in path:
        if not isinstance(tree, dict | list) or (isinstance(tree, dict) and at not in tree):
            near = did_you_mean(str(at), map(str, tree)) if isinstance(tree, dict) else ""
            source.fail(path, f"is missing{near}")
        tree = tree[at]
    return tree


def _fail(source: Source, at: KeyPath, tree: Any, kind: type[StructT], message: str) -> NoReturn:
    path, problem = locate(message)
    given = _inside(tree, path)
    inner, problem = _key_in(given, problem)
    if inner:  # a struct's own check, which begins with the key's name
        source.fail((*at, *path, *inner), problem)
    words = words_for(kind, path) or ""
    if problem.startswith("Invalid enum value ") and words:
        near = did_you_mean(str(given), words.split(" or "))
        hint = near if "did you mean" in near else ""
        source.fail((*at, *path), f"must be {words}, not {given!r}{hint}")
    if problem.startswith("Expected ") and words:
        problem = f"must be {words}, not {kind_of(given)}"
    problem = plain_words(problem)
    hint = number_hint(given) if "number" in problem else ""
    source.fail((*at, *path), problem + hint)


def _inside(tree: Any, path: KeyPath) -> Any:
    for part in path:
        try:
            tree = tree[part]
        except (KeyError, IndexError, TypeError):
            return None
    return tree


def _key_in(tree: Any, problem: str) -> tuple[KeyPath, str]:
    first, _, rest = problem.partition(" ")
    path = tuple(first.split("."))
    found = isinstance(tree, dict) and path[0] in tree
    return (path, rest) if found else ((), problem)


def _refuse_unknown_keys(source: Source, at: KeyPath, tree: Any, kind: Any) -> None:
    """Refuse keys that `kind` and its nested structs do not have; the error offers the nearest."""
    if isinstance(tree, list):
        inner = getattr(kind, "__args__", (None,))[0]
        for index, item in enumerate(tree):
            _refuse_unknown_keys(source, (*at, index), item, inner)
    if get_origin(kind) in (Union, UnionType):
        kind = next((option for option in get_args(kind) if isinstance(option, type)), kind)
    if not (isinstance(tree, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in tree.items():
        if key not in fields:
            source.unknown_key(at, key, list(fields))
        _refuse_unknown_keys(source, (*at, key), value, fields[key])
