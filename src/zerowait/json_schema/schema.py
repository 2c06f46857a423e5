"""A schema that was checked, and what is wrong with a value by it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from zerowait.errors import ConfigError, MissingExtraError
from zerowait.json_schema.checks import check_schema
from zerowait.json_schema.keywords import hardened
from zerowait.json_schema.memory import errors_of

DEEPEST: Final = 64
"""Levels of lists and objects within each other; what is nested deeper fits no schema."""


class SchemaFault(NamedTuple):
    """One thing that is wrong with a value.

    Args:
        keyword: of the schema, such as ``minimum``; ``finite`` for a number beyond a float, and
            ``depth`` for a value that is nested too deeply.
        place: the keys that lead to it.
        text: where and what, such as "$.age: -1 is less than the minimum of 0".
    """

    keyword: str
    place: tuple[str | int, ...]
    text: str


class JsonSchema:
    """A JSON schema, by the draft that it names, or else draft 2020-12.

    Args:
        schema: as `json.loads` gives it.
        where: it was written, which errors begin with.
        needed_by: what needs the extra ``schema``, for its error.

    Raises:
        ConfigError: it is no JSON schema, refers to something outside of itself, or could hang.
        MissingExtraError: the extra ``schema`` is not installed.

    Reference:
        JSON Schema (json-schema.org).
    """

    def __init__(self, schema: Any, *, where: str, needed_by: str) -> None:
        try:
            import re2  # noqa: F401 - patterns need it
            from jsonschema import FormatChecker
            from jsonschema.exceptions import SchemaError
            from jsonschema.validators import Draft202012Validator, validator_for
            from referencing import Registry
            from referencing.jsonschema import DRAFT202012, specification_with
        except ImportError:
            raise MissingExtraError(needed_by, extra="schema") from None
        if not isinstance(schema, Mapping):
            raise ConfigError(f"{where}: a JSON schema is an object, not {schema!r:.80}")
        draft = schema.get("$schema", Draft202012Validator.META_SCHEMA["$schema"])
        try:
            kind = validator_for({"$schema": draft}, default=None)
        except (TypeError, ValueError):  # it is no text, or no address
            kind = None
        if kind is None:
            raise ConfigError(f"{where}: $schema {draft!r} is no draft that is known")
        # A nested schema that names its draft would be checked by a class of jsonschema's own.
        schema = {key: value for key, value in schema.items() if key != "$schema"}
        known = specification_with(kind.META_SCHEMA["$schema"], default=DRAFT202012)
        try:
            kind.check_schema(schema, format_checker=FormatChecker(formats=()))
            check_schema(schema, Registry().resolver_with_root(known.create_resource(schema)))
        except SchemaError as error:
            raise ConfigError(
                f"{where}: is no JSON schema: {error.json_path}: {error.message}"
            ) from None
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        except RecursionError:
            raise ConfigError(f"{where}: the schema is nested too deeply") from None
        # an empty registry fetches nothing
        self._validator: Any = hardened(kind)(schema, registry=Registry())

    def faults(self, value: Any) -> list[SchemaFault]:
        """What is wrong with a value of JSON, the most telling first; empty where it fits.

        Raises nothing for any value that `json.loads` gives.
        """
        if (fault := _uncheckable(value)) is not None:
            return [fault]
        from jsonschema.exceptions import best_match, relevance

        try:
            errors = sorted(errors_of(self._validator, value), key=relevance, reverse=True)
            best = best_match(errors)
        except RecursionError:
            return [_too_deep(())]
        found = [SchemaFault(str(e.validator), (*e.absolute_path,), _told(e)) for e in errors]
        return [found[0]._replace(text=_told(best)), *found[1:]] if found else []


def _told(error: Any) -> str:
    return f"{error.json_path}: {error.message}"


def _uncheckable(value: Any) -> SchemaFault | None:
    """What keeps `value` from being held against any schema."""
    rest: list[tuple[Any, tuple[str | int, ...]]] = [(value, ())]
    while rest:
        at, place = rest.pop()
        if isinstance(at, float) and not math.isfinite(at):
            where = "/".join(map(str, place))
            return SchemaFault("finite", place, f"/{where}: the number is beyond a float")
        if not isinstance(at, dict | list):
            continue
        if len(place) >= DEEPEST:
            return _too_deep(place)
        pairs = at.items() if isinstance(at, dict) else enumerate(at)
        rest.extend((inner, (*place, key)) for key, inner in pairs)
    return None


def _too_deep(place: tuple[str | int, ...]) -> SchemaFault:
    return SchemaFault(
        "depth", place, f"nested too deeply: more than {DEEPEST} levels are not checked"
    )
