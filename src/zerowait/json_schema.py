"""JSON Schema validation that the validated text cannot hang, crash or lead off this machine.

Judges answer by a schema and responses are scored by one, and both texts may come from a policy.
The validator is jsonschema-rs: its patterns are matched in linear time (the ``regex`` crate, no
lookaround, no back references), and `is_valid` checks each value against each part of the schema
once, also where the schema refers to itself. Collecting *errors* does not: there the time doubles
with each level of a value. So the verdict always comes from `is_valid`, and errors are only
collected for schemas that do not refer to themselves.

Reference:
    JSON Schema (json-schema.org), drafts 4, 6, 7, 2019-09 and 2020-12.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from zerowait.errors import ConfigError, MissingExtraError

DEEPEST: Final = 64
"""Most levels of lists and objects inside each other; a value nested more deeply is invalid."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class SchemaFault(NamedTuple):
    """One reason why a value is invalid.

    Args:
        keyword: of the schema, such as ``minimum``; ``finite`` for a number that no float holds,
            ``depth`` for a value that is nested too deeply, ``$ref`` where the schema refers to
            itself and the part that failed is not known.
        place: keys and indices that lead to the invalid part.
        text: place and reason, such as "$.age: -1 is less than the minimum of 0".
    """

    keyword: str
    place: tuple[str | int, ...]
    text: str


class JsonSchema:
    """A compiled JSON schema of the draft that it names; draft 2020-12 where it names none.

    ``format`` is not checked.

    Args:
        schema: as `json.loads` returns it.
        where: its file or setting, with which errors begin.
        needed_by: the feature that needs the extra ``schema``, for the error without it.

    Raises:
        ConfigError: it is not a JSON schema, refers to something outside itself, or has a pattern
            that needs backtracking.
        MissingExtraError: the extra ``schema`` is not installed.
    """

    def __init__(self, schema: Any, *, where: str, needed_by: str) -> None:
        try:
            import jsonschema_rs
        except ImportError:
            raise MissingExtraError(needed_by, extra="schema") from None
        if not isinstance(schema, Mapping):
            raise ConfigError(f"{where}: a JSON schema is an object, not {schema!r:.80}")
        try:
            self._validator: Any = jsonschema_rs.validator_for(
                dict(schema),
                pattern_options=jsonschema_rs.RegexOptions(),
                validate_formats=False,
                retriever=_refuse_to_retrieve,
            )
            if _applies_itself(schema):
                raise ConfigError(f"{where}: the references go around in a circle")
            self._is_recursive = _refers_to_itself(schema)
        except jsonschema_rs.ValidationError as error:
            raise ConfigError(f"{where}: {_schema_problem(error)}") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{where}: the schema is nested too deeply: {error}") from None

    def faults(self, value: Any) -> list[SchemaFault]:
        """What makes a JSON value invalid, the most telling first; empty for a valid one.

        Raises nothing for any value that `json.loads` returns.
        """
        if (fault := _uncheckable(value)) is not None:
            return [fault]
        try:
            is_valid = self._validator.is_valid(value)
        except UnicodeEncodeError:  # half of a surrogate pair: JSON can carry it, UTF-8 cannot
            value = json.loads(_SURROGATE.sub("\ufffd", json.dumps(value, ensure_ascii=False)))
            is_valid = self._validator.is_valid(value)
        if is_valid:
            return []
        if self._is_recursive:
            return [SchemaFault("$ref", (), "$: does not fit the schema, which refers to itself")]
        faults = [
            SchemaFault(e.kind.name, (*e.instance_path,), f"{_json_path(e)}: {e.message}")
            for e in self._validator.iter_errors(value)
        ]
        # as jsonschema's `relevance`: an error near the root says more than one far below it
        return sorted(faults, key=lambda fault: (len(fault.place), fault.keyword in _COMBINED))


def read_json_schema(path: Path) -> Any:
    """The JSON in a file, unchecked: `JsonSchema` checks it.

    Raises:
        ConfigError: it cannot be read, is not UTF-8 text, or is not JSON.
    """
    try:
        return json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"the schema {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"the schema {path} is not UTF-8 text: {error}") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: is not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, for one
        raise ConfigError(f"{path}: is not JSON that can be read: {error}") from None


_COMBINED: Final = frozenset(("anyOf", "oneOf"))
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_IN_PLACE: Final = ("not", "if", "then", "else", "allOf", "anyOf", "oneOf")
"""Keywords whose schemas are applied to the same value as the schema that they are in."""


def _refuse_to_retrieve(uri: str) -> Any:
    raise ValueError(f"{uri!r} is not read")


def _schema_problem(error: Any) -> str:
    """Why jsonschema-rs refused a schema, with what to do about it."""
    said = error.message.partition(" and retrieving it failed")[0].partition(". Custom meta")[0]
    at = f"{_json_path(error)}: {said}"
    if error.kind.name == "format":
        return (
            f"{at}; patterns are matched in linear time, so that no text can hang them: without "
            "lookaround and back references"
        )
    if error.kind.name != "$ref":
        return f"is no JSON schema: {at}"
    if said.startswith("Resource"):
        return f"{at}; nothing outside of the schema is read: copy that part under $defs"
    if "meta-schema" in said:
        return f"{at}; known drafts are 4, 6, 7, 2019-09 and 2020-12"
    return at


def _json_path(error: Any) -> str:
    steps = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in error.instance_path)
    return "$" + "".join(steps)


def _applies_itself(schema: Mapping[str, Any]) -> bool:
    """Whether a part of `schema` applies itself to the very value that it is applied to.

    Such a schema says nothing, and a validator takes every value to fit it.
    """

    def in_place(node: Any) -> Iterator[Any]:
        if isinstance(node, list):
            yield from node
        elif isinstance(node, Mapping):
            yield from (node[key] for key in _IN_PLACE if key in node)
            yield from _targets(node, schema)

    rest, done = [schema], set[int]()
    while rest:
        node = rest.pop()
        if _leads_back(node, in_place, set(), done):
            return True
        rest.extend(_children(node))
    return False


def _refers_to_itself(schema: Mapping[str, Any]) -> bool:
    """Whether references lead from a part of `schema` back to it; True where that is unclear."""

    def below(node: Any) -> Iterator[Any]:
        yield from _children(node)
        if isinstance(node, Mapping):
            yield from _targets(node, schema, unknown=schema)
            has_own_root = node is not schema and isinstance(node.get("$id", node.get("id")), str)
            yield from [schema] if has_own_root else []

    return _leads_back(schema, below, set(), set())


def _leads_back(
    node: Any, below: Callable[[Any], Iterator[Any]], above: set[int], done: set[int]
) -> bool:
    """Whether the graph that `below` spans has a cycle that can be reached from `node`.

    Args:
        node: a part of a schema.
        below: yields the parts that a part leads to.
        above: identities of the parts on the way to `node`.
        done: identities of the parts known to lead to no cycle; added to.
    """
    if id(node) in above:
        return True
    if id(node) in done or not isinstance(node, Mapping | list):
        return False
    above.add(id(node))
    found = any(_leads_back(inner, below, above, done) for inner in below(node))
    above.discard(id(node))
    done.add(id(node))
    return found


def _targets(
    node: Mapping[str, Any], schema: Mapping[str, Any], *, unknown: Any = None
) -> Iterator[Any]:
    """The parts of `schema` that the references of `node` point to.

    Args:
        node: a part of the schema.
        schema: the whole schema.
        unknown: stands for the target of a reference that is no JSON pointer, such as an anchor.
    """
    for key in _REFERENCES:
        reference = node.get(key)
        if not isinstance(reference, str):
            continue
        target: Any = schema if reference == "#" or reference.startswith("#/") else unknown
        for step in reference.split("/")[1:] if target is schema else ():
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            target = target.get(name) if isinstance(target, Mapping) else unknown
        yield target


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _uncheckable(value: Any) -> SchemaFault | None:
    """What keeps `value` from being validated by any schema: its depth, or an infinite number."""
    rest: list[tuple[Any, tuple[str | int, ...]]] = [(value, ())]
    while rest:
        at, place = rest.pop()
        if isinstance(at, float) and not math.isfinite(at):
            where = "/".join(map(str, place))
            return SchemaFault("finite", place, f"/{where}: the number is beyond a float")
        if not isinstance(at, dict | list):
            continue
        if len(place) >= DEEPEST:
            return SchemaFault(
                "depth", place, f"nested too deeply: more than {DEEPEST} levels are not checked"
            )
        pairs = at.items() if isinstance(at, dict) else enumerate(at)
        rest.extend((inner, (*place, key)) for key, inner in pairs)
    return None
