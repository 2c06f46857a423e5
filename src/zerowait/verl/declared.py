"""What verl declares of its configuration's values, read from its source: nothing is imported.

Importing verl takes seconds, and loads torch and Ray. Its YAML files give most keys a value of the
right type. Where they do not (``lr: 0``, ``seed: null``), the dataclass that a section is made into
says more: its name stands under ``_target_``, and its fields are annotated.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

INT, FLOAT, BOOL, TEXT, LIST, MAPPING, NULL = (
    "a whole number",
    "a number",
    "true or false",
    "text",
    "a list",
    "a mapping",
    "null",
)
_ANY: Final = frozenset({INT, FLOAT, BOOL, TEXT, LIST, MAPPING, NULL})
_NAMED: Final = {
    "int": frozenset({INT}),
    "float": frozenset({FLOAT}),
    "bool": frozenset({BOOL}),
    "str": frozenset({TEXT}),
    "Literal": frozenset({TEXT}),
    **dict.fromkeys(("list", "tuple", "List", "Tuple"), frozenset({LIST})),
    **dict.fromkeys(("dict", "Dict"), frozenset({MAPPING})),
    "Any": _ANY,
}


@cache
def verl_folder() -> Path:
    """The folder of the installed package."""
    spec = find_spec("verl")
    places = (spec and spec.submodule_search_locations) or ()
    return Path(next(iter(places)))


@cache
def declared_fields(target: str) -> dict[str, frozenset[str]] | None:
    """What the values of a dataclass's fields may be, by their names; None: that is not known.

    Args:
        target: the dotted name of a dataclass of verl's.
    """
    module, _, name = target.rpartition(".")
    return _fields(name, _classes(_place(module)))


@cache
def declared_choices(target: str) -> dict[str, tuple[str, ...]]:
    """The names that a dataclass insists on, with ``assert self.field in [...]``, by its fields."""
    module, _, name = target.rpartition(".")
    classes = _classes(_place(module))
    return {
        field: tuple(str(option) for option in options)
        for owner in _lineage(name, classes)
        for node in ast.walk(owner)
        if isinstance(node, ast.Assert)
        for field, options in _insists(node.test)
    }


def _insists(test: ast.expr) -> Iterator[tuple[str, list[Any]]]:
    match test:
        case ast.Compare(
            left=ast.Attribute(value=ast.Name(id="self"), attr=field),
            ops=[ast.In()],
            comparators=[ast.List() as options],
        ):
            yield field, ast.literal_eval(options)


def _lineage(name: str, classes: dict[str, ast.ClassDef]) -> Iterator[ast.ClassDef]:
    """The class and those above it, the uppermost first."""
    if name in classes:
        for base in classes[name].bases:
            yield from _lineage(ast.unparse(base), classes)
        yield classes[name]


def _place(module: str) -> Path:
    where = verl_folder().joinpath(*module.split(".")[1:])
    return where if where.is_dir() else where.with_suffix(".py")


def _fields(name: str, classes: dict[str, ast.ClassDef]) -> dict[str, frozenset[str]] | None:
    if name == "BaseConfig":
        return {"_target_": frozenset({TEXT})}
    found = classes.get(name)
    if found is None:
        return None
    fields: dict[str, frozenset[str]] = {}
    for base in found.bases:
        inherited = _fields(ast.unparse(base), classes)
        if inherited is None:
            return None
        fields |= inherited
    for node in found.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return None
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            fields[node.target.id] = _kinds(node.annotation)
    return fields


@cache
def _classes(where: Path) -> dict[str, ast.ClassDef]:
    files = sorted(where.glob("*.py")) if where.is_dir() else [where]
    return {
        node.name: node
        for file in files
        if file.is_file()
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }


def _kinds(annotation: ast.expr) -> frozenset[str]:
    """What a value with this annotation may be; a class of its own is written as a mapping."""
    if isinstance(annotation, ast.Constant) and annotation.value is None:
        return frozenset({NULL})
    if isinstance(annotation, ast.BinOp):
        return _kinds(annotation.left) | _kinds(annotation.right)
    if isinstance(annotation, ast.Name):
        return _NAMED.get(annotation.id, frozenset({MAPPING, NULL}))
    if isinstance(annotation, ast.Subscript):
        return _subscripted(ast.unparse(annotation.value), annotation.slice)
    return _ANY


def _subscripted(outer: str, inner: ast.expr) -> frozenset[str]:
    options = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if outer in {"Optional", "Union"}:
        also = {NULL} if outer == "Optional" else set()
        return frozenset(also).union(*map(_kinds, options))
    return _NAMED.get(outer, _ANY)
