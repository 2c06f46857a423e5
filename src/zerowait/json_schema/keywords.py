"""Keywords of JSON Schema that jsonschema checks inexactly, or in a time that a text can choose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

from zerowait.json_schema.memory import remembers
from zerowait.json_schema.patterns import matcher


@cache
def hardened(kind: Any) -> Any:
    """The validator class `kind` of jsonschema, with the keywords of this module and a memory."""
    from jsonschema.validators import extend

    own = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "multipleOf": _multiple_of,
        "divisibleBy": _multiple_of,  # its name in draft 3
        "uniqueItems": _unique_items,
    }
    kept = {name: check for name, check in own.items() if name in kind.VALIDATORS}
    return remembers(extend(kind, kept))


def _error(message: str) -> Any:
    from jsonschema.exceptions import ValidationError

    return ValidationError(message)


def _pattern(_: Any, pattern: str, value: Any, __: Any) -> Iterator[Any]:
    if isinstance(value, str) and not matcher(pattern)(value):
        yield _error(f"{value!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], value: Any, _: Any
) -> Iterator[Any]:
    if not isinstance(value, dict):
        return
    for pattern, schema in patterns.items():
        for key in filter(matcher(pattern), value):
            yield from validator.descend(value[key], schema, path=key, schema_path=pattern)


def _additional_properties(
    validator: Any, allowed: Any, value: Any, schema: Mapping[str, Any]
) -> Iterator[Any]:
    if not isinstance(value, dict):
        return
    patterns = [matcher(pattern) for pattern in schema.get("patternProperties", ())]
    known = schema.get("properties", {})
    extra = [key for key in value if key not in known and not any(p(key) for p in patterns)]
    if isinstance(allowed, dict):
        for key in extra:
            yield from validator.descend(value[key], allowed, path=key)
    elif not allowed and extra:
        names = ", ".join(map(repr, extra))
        yield _error(f"additional properties are not allowed, and it has {names}")


def _multiple_of(_: Any, unit: float, value: Any, __: Any) -> Iterator[Any]:
    """Of the decimal numbers as they are written: 0.3 is a multiple of 0.1."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        ratio = _exact(value) / _exact(unit)
        if ratio.denominator != 1:
            yield _error(f"{value!r} is not a multiple of {unit}")


def _exact(number: float) -> Fraction:
    return Fraction(number if isinstance(number, int) else repr(number))


def _unique_items(_: Any, wanted: bool, value: Any, __: Any) -> Iterator[Any]:  # noqa: FBT001 - jsonschema passes it so
    if wanted and isinstance(value, list) and len({_frozen(item) for item in value}) < len(value):
        yield _error(f"{value!r} has non-unique elements")


def _frozen(value: Any) -> Any:
    """A value that is equal to another's where JSON Schema calls the two equal: 1 and 1.0."""
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return frozenset((key, _frozen(inner)) for key, inner in value.items())
    return (bool, value) if isinstance(value, bool) else value
