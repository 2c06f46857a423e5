"""The answer format that a request asks for: a range, a choice, criteria, or a JSON schema.

It is read from ``response_format`` (or vLLM's ``guided_*`` and ``structured_outputs``), else from
the text of the messages, without the marked parts that are to be judged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from zerowait.config import VerdictRule
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
    r"(?:(?:WORD|verdict|answer|reply) (?:is|with|by) one of:? (?P<words>[^\n]+?)\.?$"
    r"|exactly one word, (?P<alone>[^\n]+?), and nothing else)",
    re.MULTILINE | re.IGNORECASE,
)
_CRITERIA: Final = re.compile(
    r"exactly one line for each criterion[^\n]*\n"
    r"(?P<lines>(?:[A-Za-z][A-Za-z0-9_]*: (?:N|WORD)\n)+)"
    r"where each (?:N|WORD) is (?P<form>[^\n]+)"
)
_SCHEMA: Final = re.compile(r"JSON schema[^\n{]*:\s*(?=\{)", re.IGNORECASE)
_FORMS_KEPT: Final = 64  # all requests of a judge ask for one form, or for a few


class RequestedFormat(msgspec.Struct, frozen=True):
    """The answer format of a request; None for what it does not specify.

    Args:
        rule: the allowed verdicts.
        criteria: names of the lines with one verdict each; empty for a single verdict.
        schema: the JSON schema of the whole answer.
        is_object: whether the verdict must be in a JSON object.
    """

    rule: VerdictRule | None = None
    criteria: tuple[str, ...] = ()
    schema: Any = None
    is_object: bool = False


def requested_format(
    messages: Sequence[Mapping[str, Any]], body: Mapping[str, Any]
) -> RequestedFormat:
    """The answer format that a request asks for.

    Args:
        messages: of the request.
        body: the decoded request, for its structured-output fields.

    >>> asked = [{"role": "user", "content": "Give a whole number from 1 to 5."}]
    >>> requested_format(asked, {}).rule.integer
    (1, 5)
    """
    schema, words, is_object = _structured_output(body)
    if words:
        return RequestedFormat(VerdictRule(choice=words) if len(set(words)) > 1 else None)
    if schema is not None:
        return _of_schema(msgspec.json.encode(schema))
    text = _MATERIAL.sub("", "\n".join(content_text(each.get("content")) for each in messages))
    return _of_text(text, is_object=is_object)


@lru_cache(_FORMS_KEPT)
def _of_schema(encoded: bytes) -> RequestedFormat:
    schema = msgspec.json.decode(encoded)
    return RequestedFormat(_rule_of(schema), schema=schema)


@lru_cache(_FORMS_KEPT)
def _of_text(text: str, *, is_object: bool) -> RequestedFormat:
    criteria = _CRITERIA.search(text)
    if criteria is not None:
        names = tuple(line.partition(":")[0] for line in criteria["lines"].splitlines())
        rule = _rule_in(criteria["form"]) or _choice_of(criteria["form"].removeprefix("one of "))
        return RequestedFormat(rule, names)
    stated = _SCHEMA.search(text)
    if stated is not None and (found := _json_at(text, stated.end())) is not None:
        return RequestedFormat(schema=found)
    return RequestedFormat(_rule_in(text), is_object=is_object)


def _structured_output(body: Mapping[str, Any]) -> tuple[Any, list[str], bool]:
    """Schema and choices of structured output, and whether a JSON object is required."""
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
    """The range or choice that a text asks for; None without any."""
    choice = _CHOICE.search(text)
    if choice is not None:
        return _choice_of(choice["words"] or choice["alone"])
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


def _rule_of(schema: Any) -> VerdictRule | None:
    """The rule of a schema for one number or word, as a judge asks for it; None for any other."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    given = properties if isinstance(properties, Mapping) else {}
    verdict = given.get("score", given.get("verdict"))
    if not isinstance(verdict, Mapping) or len(given.keys() - {"reason"}) > 1:
        return None
    listed, ends = verdict.get("enum"), (verdict.get("minimum"), verdict.get("maximum"))
    if isinstance(listed, list) and len(listed) > 1:
        if all(isinstance(value, str) for value in listed):
            return VerdictRule(choice=listed) if len(set(listed)) > 1 else None
        ends = listed[0], listed[-1]
    low, high = ends
    if low is None or high is None or not low < high:
        return None
    whole = verdict.get("type") == "integer"
    return VerdictRule(integer=(low, high)) if whole else VerdictRule(number=(low, high))


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
