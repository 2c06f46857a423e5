"""A JSON schema that judges answer by, read from a file and checked before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zerowait.errors import ConfigError, did_you_mean
from zerowait.json_schema import JsonSchema, read_json_schema

_MOST_REFERENCES = 64


def read_schema(path: Path) -> tuple[dict[str, Any], JsonSchema]:
    """The JSON schema in a file, and what holds answers against it.

    Raises:
        ConfigError: it cannot be read, is no JSON schema that can be checked safely, or describes
            no object.
        MissingExtraError: the packages for JSON schemas are not installed.
    """
    schema = read_json_schema(path)
    checked = JsonSchema(schema, where=str(path), needed_by="a JSON schema verdict")
    if resolved(schema, schema, path).get("type") != "object":
        raise ConfigError(f'{path}: must describe an object: {{"type": "object", ...}}')
    return schema, checked


def verdict_at(schema: dict[str, Any], place: str, path: Path) -> tuple[float, float] | None:
    """The range that `schema` declares for the number at `place`; None where it declares none.

    A boolean is worth 1 or 0.

    Args:
        schema: the whole schema.
        place: such as ``/scores/logic``.
        path: the schema's file, for errors.

    Raises:
        ConfigError: there is no such place, it may be missing from a reply, or holds no number.
    """
    node, steps = resolved(schema, schema, path), parts(place)
    for depth, step in enumerate(steps):
        at = "/" + "/".join(steps[: depth + 1])
        if node.get("type") != "object":
            raise ConfigError(f"value {at} lies in what is no object in {path}")
        known = node.get("properties", {})
        if step not in known:
            raise ConfigError(f"value {at} is not in {path}{did_you_mean(step, known)}")
        if step not in node.get("required", ()):
            raise ConfigError(
                f"value {at} is not required by {path}, so that a reply may be without a verdict: "
                f"put {step!r} into 'required'"
            )
        node = resolved(known[step], schema, path)
    return _range(node, f"value {place} in {path}")


def parts(place: str) -> list[str]:
    """The keys in a place: ``/scores/logic`` is scores, then logic."""
    return place.removeprefix("/").split("/")


def has_reason_before(schema: dict[str, Any], places: list[str], path: Path) -> bool:
    """Whether a text property comes before the first one that a verdict is in."""
    first_keys = {parts(place)[0] for place in places}
    for name, node in resolved(schema, schema, path).get("properties", {}).items():
        if name in first_keys:
            return False
        if resolved(node, schema, path).get("type") == "string":
            return True
    return False


def is_closed(node: Any) -> bool:
    """Whether every object in a schema names all its properties and requires them.

    Providers hold a model to a schema token by token (``strict``) only then.
    """
    if isinstance(node, list):
        return all(map(is_closed, node))
    if not isinstance(node, dict):
        return True
    if node.get("type") == "object" or "properties" in node:
        named = set(node.get("properties", ()))
        if node.get("additionalProperties") is not False or named - set(node.get("required", ())):
            return False
    return all(map(is_closed, node.values()))


def resolved(node: Any, schema: dict[str, Any], path: Path) -> dict[str, Any]:
    """`node` with its reference followed.

    Raises:
        ConfigError: the reference leads outside the schema, nowhere, or around in a circle.
    """
    for _ in range(_MOST_REFERENCES):
        if not isinstance(node, dict):
            return {}
        reference = node.get("$ref")
        if reference is None:
            return node
        node = _referred(reference, schema, path)
    raise ConfigError(f"{path}: the references go around in a circle")


def _referred(reference: Any, schema: dict[str, Any], path: Path) -> Any:
    inside = isinstance(reference, str) and (reference == "#" or reference.startswith("#/"))
    if not inside:
        raise ConfigError(
            f"{path}: $ref {reference!r} leads elsewhere; only references such as #/$defs/name"
        )
    node: Any = schema
    for step in reference.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or key not in node:
            raise ConfigError(f"{path}: $ref {reference!r} leads nowhere")
        node = node[key]
    return node


def _range(node: dict[str, Any], what: str) -> tuple[float, float] | None:
    choices = node.get("enum")
    if choices and all(_is_number(choice) for choice in choices):
        return float(min(choices)), float(max(choices))
    kind = node.get("type")
    if kind == "boolean":
        return 0.0, 1.0
    if kind not in ("integer", "number"):
        raise ConfigError(f"{what} is {kind or 'of any type'}, and a verdict is a number")
    low = node.get("minimum", node.get("exclusiveMinimum"))
    high = node.get("maximum", node.get("exclusiveMaximum"))
    if low is None or high is None:
        return None
    if not low < high:
        raise ConfigError(f"{what} has an empty range [{low}, {high}]")
    return float(low), float(high)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
