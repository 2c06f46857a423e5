"""Values that fit a JSON schema, as the fake judge answers with where a request has one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from zerowait.testing.draws import pick

_GOLDEN_RATIO: Final = 0.618033988749895  # steps by it give each number of an object another point
_MAX_DEPTH: Final = 12
_TEXT: Final = "as the material shows"


def schema_instance(schema: Any, point: float, *, outside: bool = False) -> Any:
    """A value that fits `schema`.

    Args:
        schema: a JSON schema; ``pattern`` and ``format`` are ignored.
        point: in [0, 1); the position of numbers in their ranges.
        outside: makes numbers greater than the schema allows.

    >>> schema_instance({"properties": {"score": {"type": "integer", "maximum": 4}}}, 0.9)
    {'score': 4}
    """
    return _Writer(schema, point, outside=outside).value(schema, 0)


class _Writer:
    """Builds one value; each number in it has another position in its range."""

    def __init__(self, root: Any, point: float, *, outside: bool) -> None:
        self._root = root
        self._point = point
        self._outside = outside

    def value(self, schema: Any, depth: int) -> Any:
        schema = self._resolved(schema)
        if depth > _MAX_DEPTH or not isinstance(schema, Mapping):
            return None
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._listed(schema["enum"])
        return self._of(_kind(schema), schema, depth)

    def _listed(self, values: Sequence[Any]) -> Any:
        """One of the values that a schema lists; outside, one of their type that it does not."""
        if not self._outside:
            return pick(self._next(), values)
        if all(isinstance(value, int) for value in values):
            return max(values) + 7
        return "perhaps" if "perhaps" not in values else "undecided"

    def _of(self, kind: str, schema: Mapping[str, Any], depth: int) -> Any:
        match kind:
            case "object":
                found: Any = self._object(schema, depth)
            case "array":
                found = self._array(schema, depth)
            case "integer" | "number":
                found = self._number(schema, whole=kind == "integer")
            case "boolean":
                found = self._next() < 0.5
            case "null":
                found = None
            case _:
                found = _text_of(schema)
        return found

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        written = {name: self.value(inner, depth + 1) for name, inner in properties.items()}
        return written | {n: _TEXT for n in schema.get("required", ()) if n not in written}

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        first = [self.value(each, depth + 1) for each in schema.get("prefixItems", ())]
        most = schema.get("maxItems", math.inf)
        least = min(max(schema.get("minItems", 1), len(first)), most)
        inner = schema.get("items", {"type": "string"})
        return first + [self.value(inner, depth + 1) for _ in range(int(least) - len(first))]

    def _number(self, schema: Mapping[str, Any], *, whole: bool) -> float:
        step = float(schema.get("multipleOf", 1 if whole else 0))
        low, high = _bounds(schema, step)
        if self._outside:
            return int(high) + 7 if whole else high + 7.0
        point = self._next()
        if step:
            start = math.ceil(low / step)
            found = (start + int(point * (math.floor(high / step) - start + 1))) * step
        else:
            found = min(max(round(low + point * (high - low), 4), low), high)
        return int(found) if whole else found

    def _next(self) -> float:
        point, self._point = self._point, (self._point + _GOLDEN_RATIO) % 1.0
        return point

    def _resolved(self, schema: Any) -> Any:
        """The schema with ``$ref`` followed, the first of ``anyOf`` taken, and ``allOf`` merged."""
        for _ in range(_MAX_DEPTH):
            if not isinstance(schema, Mapping):
                return schema
            reference = schema.get("$ref")
            if isinstance(reference, str) and reference.startswith("#"):
                schema = _at(self._root, reference)
            elif schema.get("anyOf") or schema.get("oneOf"):
                rest = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")}
                schema = {**rest, **(schema.get("anyOf") or schema["oneOf"])[0]}
            elif schema.get("allOf"):
                rest = {k: v for k, v in schema.items() if k != "allOf"}
                schema = _merged([rest, *schema["allOf"]])
            else:
                return schema
        return None


def _bounds(schema: Mapping[str, Any], step: float) -> tuple[float, float]:
    """The lowest and highest number that a schema allows; a range of 9 where it has no bounds."""
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is None:
        low = 1 if high is None or high > 1 else min(0, high - 1)
    if high is None:
        high = low + 9
    inner = step or (high - low) / 100
    least = low + inner if low == schema.get("exclusiveMinimum") else low
    most = high - inner if high == schema.get("exclusiveMaximum") else high
    return float(least), float(most)


def _merged(schemas: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The schemas as one, with the properties of all."""
    whole: dict[str, Any] = {}
    for schema in schemas:
        properties = {**whole.get("properties", {}), **schema.get("properties", {})}
        whole |= schema
        if properties:
            whole["properties"] = properties
    return whole


def _kind(schema: Mapping[str, Any]) -> str:
    """The type of a schema, guessed from its keys where it names none."""
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return next((str(kind) for kind in kinds if kind != "null"), "null")
    if kinds is not None:
        return str(kinds)
    if "properties" in schema:
        return "object"
    return "number" if "minimum" in schema or "maximum" in schema else "string"


def _text_of(schema: Mapping[str, Any]) -> str:
    text = _TEXT.ljust(schema.get("minLength", 0), ".")
    return text[: schema.get("maxLength", len(text))]


def _at(root: Any, reference: str) -> Any:
    """The value at a JSON pointer such as ``#/$defs/score``; None where there is none."""
    found = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        if part:
            found = found.get(part) if isinstance(found, Mapping) else None
    return found
