"""The form of answer that a request asks for, and values that fit it.

It is read from ``response_format`` (or vLLM's ``guided_*`` and ``structured_outputs``), else from
the words of the messages, where the material to be judged does not count.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from zerowait.config import VerdictRule
from zerowait.testing.draws import pick
from zerowait.types import content_text

_MATERIAL: Final = re.compile(
    r"^<<<BEGIN (?P<name>.+?) (?P<code>[0-9a-f]+)>>>\n.*?\n<<<END (?P=name) (?P=code)>>>$",
    re.DOTALL | re.MULTILINE,
)
_NUMBER: Final = r"-?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?"
_SCALE: Final = re.compile(
    r"\b(?:(?P<kind>whole|decimal|real) )?(?:number|score|rating|grade|scale|value|integer)\b"
    rf"[^.\n]{{0,20}}?\b(?:from|between|of) (?P<low>{_NUMBER}) ?(?:\([^)\n]*\) ?)?"
    rf"(?:to|and|-|\u2013) ?(?P<high>{_NUMBER})",
    re.IGNORECASE,
)
_CHOICE: Final = re.compile(
    r"(?:WORD|verdict|answer|reply) (?:is|with|by) one of:? (?P<words>[^\n]+?)\.?$",
    re.MULTILINE | re.IGNORECASE,
)
_CRITERIA: Final = re.compile(
    r"exactly one line for each criterion[^\n]*\n"
    r"(?P<lines>(?:[A-Za-z][A-Za-z0-9_]*: (?:N|WORD)\n)+)"
    r"where each (?:N|WORD) is (?P<form>[^\n]+)"
)
_SCHEMA: Final = re.compile(r"JSON schema[^\n{]*:\s*(?=\{)", re.IGNORECASE)
_STEP: Final = 0.618033988749895  # of the golden section: no two numbers of an object are alike
_DEEPEST: Final = 12
_TEXT: Final = "as the material shows"


class AskedForm(msgspec.Struct, frozen=True):
    """What a request asks for; None where it does not say.

    Args:
        rule: the form of a verdict.
        criteria: the names of the lines that have a verdict each; empty for one verdict.
        schema: that the whole answer has to fit.
        is_object: whether the verdict has to stand in a JSON object.
    """

    rule: VerdictRule | None = None
    criteria: tuple[str, ...] = ()
    schema: Any = None
    is_object: bool = False


def asked_form(messages: Sequence[Mapping[str, Any]], body: Mapping[str, Any]) -> AskedForm:
    """The form that a request with this `body` and these `messages` asks for.

    >>> asked = [{"role": "user", "content": "Give a whole number from 1 to 5."}]
    >>> asked_form(asked, {}).rule.integer
    (1, 5)
    """
    schema, words, is_object = _enforced(body)
    if words:
        return AskedForm(VerdictRule(choice=words) if len(set(words)) > 1 else None)
    if schema is not None:
        return AskedForm(schema=schema)
    text = _MATERIAL.sub("", "\n".join(content_text(each.get("content")) for each in messages))
    criteria = _CRITERIA.search(text)
    if criteria is not None:
        names = tuple(line.partition(":")[0] for line in criteria["lines"].splitlines())
        rule = _rule_in(criteria["form"]) or _choice_of(criteria["form"].removeprefix("one of "))
        return AskedForm(rule, names)
    stated = _SCHEMA.search(text)
    if stated is not None and (found := _json_at(text, stated.end())) is not None:
        return AskedForm(schema=found)
    return AskedForm(_rule_in(text), is_object=is_object)


def instance(schema: Any, point: float, *, outside: bool = False) -> Any:
    """A value that fits `schema`, another one for each `point` in [0, 1).

    Args:
        schema: a JSON schema; patterns and formats of text are not looked at.
        point: where in its ranges the numbers are.
        outside: numbers are greater than the schema allows.

    >>> instance({"properties": {"score": {"type": "integer", "maximum": 4}}}, 0.9)
    {'score': 4}
    """
    return _Writer(schema, point, outside=outside).value(schema, 0)


class _Writer:
    """Writes one value; every number in it is at another point of its range."""

    def __init__(self, root: Any, point: float, *, outside: bool) -> None:
        self._root = root
        self._point = point
        self._outside = outside

    def value(self, schema: Any, depth: int) -> Any:
        schema = self._resolved(schema)
        if depth > _DEEPEST or not isinstance(schema, Mapping):
            return None
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return pick(self._next(), schema["enum"])
        return self._of(_kind(schema), schema, depth)

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
        low, high = _ends(schema, step)
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
        point, self._point = self._point, (self._point + _STEP) % 1.0
        return point

    def _resolved(self, schema: Any) -> Any:
        """The schema behind a local reference; the first of alternatives, all of what is joined."""
        for _ in range(_DEEPEST):
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
                schema = _joined([rest, *schema["allOf"]])
            else:
                return schema
        return None


def _ends(schema: Mapping[str, Any], step: float) -> tuple[float, float]:
    """The least and the greatest number that a schema allows; ten of them where it does not say."""
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


def _joined(schemas: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for schema in schemas:
        properties = {**whole.get("properties", {}), **schema.get("properties", {})}
        whole |= schema
        if properties:
            whole["properties"] = properties
    return whole


def _kind(schema: Mapping[str, Any]) -> str:
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
    found = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        if part:
            found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _enforced(body: Mapping[str, Any]) -> tuple[Any, list[str], bool]:
    """The schema and the words that a request insists on, and whether on a JSON object."""
    text = body.get("text")
    form = body.get("response_format") or (
        text.get("format") if isinstance(text, Mapping) else None
    )
    form = form if isinstance(form, Mapping) else {}
    inner = form.get("json_schema")
    schema = inner.get("schema") if isinstance(inner, Mapping) else form.get("schema")
    structured = body.get("structured_outputs")
    structured = structured if isinstance(structured, Mapping) else {}
    if schema is None:
        schema = body.get("guided_json") or structured.get("json")
    if isinstance(schema, str):
        schema = _json_at(schema, 0)
    words = body.get("guided_choice") or structured.get("choice") or []
    return schema, [str(word) for word in words], form.get("type") == "json_object"


def _rule_in(text: str) -> VerdictRule | None:
    choice = _CHOICE.search(text)
    if choice is not None:
        return _choice_of(choice["words"])
    scales = [scale for scale in _SCALE.finditer(text) if scale["kind"]]
    scale = scales[-1] if scales else _SCALE.search(text)
    if scale is None:
        return None
    low, high = float(scale["low"]), float(scale["high"])
    if not low < high:
        return None
    kind = (scale["kind"] or "").lower()
    unit = low == 0 and high == 1 and kind != "whole"
    if kind in ("decimal", "real") or unit or not (low.is_integer() and high.is_integer()):
        return VerdictRule(number=(low, high))
    return VerdictRule(integer=(int(low), int(high)))


def _choice_of(words: str) -> VerdictRule | None:
    found = [word.strip(" .'\"`") for word in re.split(r",| or ", words)]
    found = [word for word in found if word]
    return VerdictRule(choice=found) if len(set(found)) > 1 else None


def _json_at(text: str, start: int) -> Any:
    try:
        found, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, Mapping) else None
