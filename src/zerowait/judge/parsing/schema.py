"""A verdict that is a JSON object by the user's own JSON schema."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from zerowait.config.schema import VerdictRule
from zerowait.errors import ConfigError, did_you_mean
from zerowait.json_schema import JsonSchema, SchemaFault, read_json_schema
from zerowait.judge.parsing.answer import folded, split_thinking, visible_answer
from zerowait.judge.parsing.context import reconsiders
from zerowait.judge.parsing.loose_json import decode_object, json_object
from zerowait.judge.parsing.structured import json_schema_format
from zerowait.judge.parsing.verdict import one_line
from zerowait.types import Abstain, FailureKind, Score

_MOST_REFERENCES = 64


def read_schema_file(path: Path) -> tuple[dict[str, Any], JsonSchema]:
    """The JSON schema in a file, and its validator.

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


def verdict_range(schema: dict[str, Any], pointer: str, path: Path) -> tuple[float, float] | None:
    """The range that `schema` declares for the number at `pointer`; None where it declares none.

    A boolean scores 1 or 0.

    Args:
        schema: the whole schema.
        pointer: a JSON pointer such as ``/scores/logic``.
        path: the schema's file, for errors.

    Raises:
        ConfigError: nothing is there, it may be missing from a reply, or holds no number.
    """
    node, steps = resolved(schema, schema, path), pointer_keys(pointer)
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
    return _range(node, f"value {pointer} in {path}")


def pointer_keys(pointer: str) -> list[str]:
    """The keys in a JSON pointer: ``/scores/logic`` is scores, then logic."""
    return pointer.removeprefix("/").split("/")


def has_reason_before(schema: dict[str, Any], pointers: list[str], path: Path) -> bool:
    """Whether a text property comes before the first property that holds a verdict.

    Args:
        schema: the whole schema.
        pointers: JSON pointers of the verdicts.
        path: the schema's file, for errors.
    """
    first_keys = {pointer_keys(pointer)[0] for pointer in pointers}
    for name, node in resolved(schema, schema, path).get("properties", {}).items():
        if name in first_keys:
            return False
        if resolved(node, schema, path).get("type") == "string":
            return True
    return False


def is_strict(node: Any) -> bool:
    """Whether every object in a schema names all its properties and requires them.

    Providers hold a model to a schema token by token (``strict``) only then.
    """
    if isinstance(node, list):
        return all(map(is_strict, node))
    if not isinstance(node, dict):
        return True
    if node.get("type") == "object" or "properties" in node:
        named = set(node.get("properties", ()))
        if node.get("additionalProperties") is not False or named - set(node.get("required", ())):
            return False
    return all(map(is_strict, node.values()))


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
        node = _follow_reference(reference, schema, path)
    raise ConfigError(f"{path}: the references go around in a circle")


def _follow_reference(reference: Any, schema: dict[str, Any], path: Path) -> Any:
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


_BOUNDS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "finite"))
_SHOWN_CHARS = 160


class SchemaForm:
    """An answer that fits a JSON schema; the score is a number in it, or a weighted sum of several.

    Args:
        rule: with ``schema`` and ``value``.
        base: the folder that the schema's path starts from.
        structured: whether the endpoint is asked to enforce the schema.

    Raises:
        ConfigError: the schema or a verdict in it does not have the form that it needs.
        MissingExtraError: the extra ``schema`` is not installed.
    """

    def __init__(self, rule: VerdictRule, *, base: Path, structured: bool = True) -> None:
        assert rule.schema is not None  # noqa: S101 - checked by the caller
        self._path = base / Path(rule.schema).expanduser()
        self._schema, self._checked = read_schema_file(self._path)
        self._structured = structured
        self.enforced = f"schema {self._path}" if structured else ""
        value = rule.value or ""
        weights = value if isinstance(value, Mapping) else {value: 1.0}
        self._weights = {f"/{place.removeprefix('/')}": w for place, w in weights.items()}
        if len(self._weights) < len(weights):
            raise ConfigError("value names one place twice")
        for place, weight in self._weights.items():
            if not (math.isfinite(weight) and weight):
                raise ConfigError(f"value {place} needs a weight that is not 0, not {weight}")
        self._ranges = [verdict_range(self._schema, place, self._path) for place in self._weights]

    @cached_property
    def bounds(self) -> tuple[float, float] | None:
        """The least and the greatest score; None where the schema has no minimum or maximum."""
        ends = [
            sorted((weight * ends[0], weight * ends[1]))
            for weight, ends in zip(self._weights.values(), self._ranges, strict=True)
            if ends is not None
        ]
        if len(ends) < len(self._weights):
            return None
        return math.fsum(low for low, _ in ends), math.fsum(high for _, high in ends)

    @cached_property
    def response_format(self) -> msgspec.Raw | None:
        """OpenAI's ``json_schema`` format, its properties in the order of the file."""
        if not self._structured:
            return None
        return json_schema_format(self._schema, strict=is_strict(self._schema))

    def asked(self, *, reason_first: bool) -> str:
        """The instruction in which form to answer, with the schema."""
        schema = json.dumps(self._schema, ensure_ascii=False)
        if reason_first and not self._structured:
            return (
                "First give your reasons in a few sentences. Then end your reply with one JSON "
                f"object that fits this JSON schema, and write nothing after it:\n{schema}"
            )
        return f"Reply with one JSON object that fits this JSON schema and nothing else:\n{schema}"

    def check_reason(self) -> None:
        """Check that a judge which has to give its reasons first has a place for them.

        A structured reply is only the object, so that its reasons have to be inside.

        Raises:
            ConfigError: no text property comes before the verdict.
        """
        if self._structured and not has_reason_before(
            self._schema, list(self._weights), self._path
        ):
            raise ConfigError(
                f"the rubric asks for reasons before the verdict, and {self._path} has no text "
                "property before it: add one such as 'reason' as the first property, or say "
                "'structured: off' in the verdict or 'reason: none' in the rubric"
            )

    def read(self, text: str) -> Score | Abstain:
        """The verdict in an answer: ``detail["reply"]`` is the whole object.

        ``out_of_range`` where nothing is wrong but a minimum or maximum of the verdict's own
        numbers; everything else that does not fit the schema is ``unparseable``.
        """
        reply = _object_in(text)
        if reply is None:
            shown = one_line(text[-_SHOWN_CHARS:])
            return self._unparseable(f"the reply has no JSON object, the judge wrote {shown!r}")
        if faults := self._checked.faults(reply):
            return self._fault_outcome(faults)
        return self._score(_encodable(reply))

    def _fault_outcome(self, faults: list[SchemaFault]) -> Abstain:
        places = [(*pointer_keys(pointer),) for pointer in self._weights]
        problem = f"the reply's {one_line(faults[0].text, _SHOWN_CHARS)}"
        if all(fault.keyword in _BOUNDS and fault.place in places for fault in faults):
            return Abstain(FailureKind.OUT_OF_RANGE, problem)
        return self._unparseable(problem)

    def _score(self, reply: dict[str, Any]) -> Score | Abstain:
        try:
            terms = [
                weight * float(_value_at(reply, pointer))
                for pointer, weight in self._weights.items()
            ]
            value = math.fsum(terms)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            return Abstain(FailureKind.OUT_OF_RANGE, "the reply's verdict is no finite number")
        if self.bounds is not None:  # a sum of rounded terms may be a hair outside
            value = min(max(value, self.bounds[0]), self.bounds[1])
        why = next((text for text in reply.values() if isinstance(text, str)), "")
        return Score(value, one_line(why), {"verdict": value, "reply": reply})

    def _unparseable(self, problem: str) -> Abstain:
        return Abstain(
            FailureKind.UNPARSEABLE, f"{problem}; expected an object by {self._path.name}"
        )


def _object_in(text: str) -> dict[str, Any] | None:
    """The one JSON object of a reply, its strings as they were written; None without one.

    A reply that is the object and nothing else is decoded once. Any other is searched, first as it
    is, then in plain characters.
    """
    answer = split_thinking(text).answer
    if answer is None or reconsiders(folded(answer.rpartition("}")[2])):
        return None
    if answer.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            found, end = decode_object(answer, len(answer) - len(answer.lstrip()))
            if found and not answer[end:].strip():
                return found
    for written in (answer, visible_answer(text)):
        known = None if written is None else json_object(written)
        if known is not None:
            return known
    return None


def _encodable(reply: dict[str, Any]) -> dict[str, Any]:
    """`reply` as caches and records can keep it: halves of surrogate pairs become "?"."""
    try:
        msgspec.json.encode(reply)
    except UnicodeEncodeError:
        text = json.dumps(reply, ensure_ascii=False).encode("utf-8", "replace")
        written: dict[str, Any] = json.loads(text)
        return written
    return reply


def _value_at(reply: dict[str, Any], pointer: str) -> Any:
    value: Any = reply
    for part in pointer_keys(pointer):
        value = value[part]
    return value
