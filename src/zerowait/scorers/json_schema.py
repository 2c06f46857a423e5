"""JSON that has to satisfy a schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from zerowait.errors import ConfigError, MissingExtraError
from zerowait.scorers.answer import shown
from zerowait.scorers.gold import no_gold
from zerowait.scorers.json_text import Place, json_in
from zerowait.types import Abstain, FailureKind, Sample, Score


def json_schema(
    sample: Sample,
    *,
    schema: dict[str, Any] | None = None,
    place: Place = "last",
    score: float = 1.0,
    format_score: float = 0.0,
) -> Score | Abstain:
    """`score` when the response's JSON satisfies the schema, `format_score` for other JSON.

    A response without JSON is worth 0. In a configuration `schema` may also be the path of a JSON
    file; without it, the sample's ground truth is the schema, as a mapping or as JSON. Needs the
    extra ``schema``.

    Reference:
        JSON Schema, by default draft 2020-12 (json-schema.org).

    >>> wants_a = {"type": "object", "required": ["a"]}
    >>> json_schema(Sample("", 'So: {"a": 1}.'), schema=wants_a).value
    1.0
    """
    wanted = _gold_schema(sample.ground_truth) if schema is None else schema
    if wanted is None:
        return no_gold(sample.ground_truth, wanted="a JSON schema")
    found = json_in(sample.response, place)
    if found is None:
        return Score(0.0, "no JSON in the response")
    try:
        fault = _fault(json.dumps(wanted, sort_keys=True), found[0])
    except ConfigError as error:
        return Abstain(FailureKind.BAD_INPUT, str(error))
    return Score(format_score if fault else score, fault)


def read_schema(given: Any, base: Path) -> Any:
    """The schema that a configuration gives: itself, or what the file of that name says.

    Raises:
        ConfigError: the file is not there, or is no JSON.
    """
    if not isinstance(given, str):
        return given
    path = base / Path(given).expanduser()
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"schema: {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"schema: {path} is no JSON: {error}") from None


def check_json_schema(options: Mapping[str, Any]) -> None:
    """Raises a ConfigError unless the schema is one, and refers to nothing outside of itself."""
    if find_spec("jsonschema") is None:
        raise MissingExtraError("the scorer json_schema", extra="schema")
    schema = options.get("schema")
    if schema is not None:
        _validator(json.dumps(schema, sort_keys=True))


def _gold_schema(ground_truth: Any) -> dict[str, Any] | None:
    if isinstance(ground_truth, str):
        try:
            ground_truth = json.loads(ground_truth)
        except (ValueError, RecursionError):
            return None
    return dict(ground_truth) if isinstance(ground_truth, Mapping) else None


def _fault(schema: str, value: Any) -> str:
    """What is wrong with `value`, and where; empty when nothing is."""
    from jsonschema.exceptions import best_match

    error = best_match(_validator(schema).iter_errors(value))
    return "" if error is None else f"{error.json_path}: {shown(error.message)}"


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    """The validator of a schema, given as JSON.

    Raises:
        ConfigError: it is no schema.
    """
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing import Registry

    wanted = json.loads(schema)
    kind = validator_for(wanted, default=Draft202012Validator)
    try:
        kind.check_schema(wanted)
    except SchemaError as error:
        raise ConfigError(f"schema: {error.json_path}: {error.message}") from None
    for reference in _references(wanted):
        if not reference.startswith("#"):
            raise ConfigError(
                f"schema: refers to {reference!r}; nothing outside of the schema is read: "
                "copy that part under $defs"
            )
    return kind(wanted, registry=Registry())


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        for key in ("$ref", "$dynamicRef"):
            if isinstance(schema.get(key), str):
                yield schema[key]
    if isinstance(schema, Mapping | list):
        for item in schema.values() if isinstance(schema, Mapping) else schema:
            yield from _references(item)
