"""A verdict inside a JSON object, however loosely the judge writes JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from zerowait.judge.answer import folded, plain
from zerowait.judge.claims import Claim, Reader, Reading, Verdict, says_nothing_after

T = TypeVar("T")

_COMMENT = re.compile(
    r"""(?P<string>"(?:[^"\\]++|\\.)*+"?)|//[^\n]*+|/\*.*?(?:\*/|\Z)|\#[^\n]*+""", re.DOTALL
)
_TRAILING_COMMA = re.compile(r"""(?P<string>"(?:[^"\\]++|\\.)*+"?)|,(?=\s*[}\]])""", re.DOTALL)
_REASONS = frozenset(
    (
        *("reason", "reasons", "reasoning", "explanation", "rationale", "why", "comment"),
        *("feedback", "justification", "analysis", "理由", "原因", "解释", "评语"),
    )
)

_OF_A_CALL = frozenset(("type", "id", "name", "function", "arguments", "parameters", "input"))


class _Pairs(list[tuple[str, Any]]):
    """An object's members, repeated keys included."""


def json_claim(text: str, reader: Reader) -> tuple[Claim | None, tuple[int, int]]:
    """What the text's JSON object claims, if it has one, and the span the object takes.

    Only members of the object itself count, or of an object that is its only member; several
    different ones claim something that is not a verdict. The span is empty where no object was
    found.
    """
    for start, end in _candidates(text):
        value = _decoded(text[start:end], _object)
        if value is not None:
            return _claim(value, (start, end), text, reader), (start, end)
    return None, (0, 0)


def json_object(text: str) -> dict[str, Any] | None:
    """The text's JSON object, its numbers as they are; None where it has none.

    An object that gives a key twice is none: nobody can say which of the two is meant.
    """
    for start, end in _candidates(text):
        value = _decoded(text[start:end], _strict_object)
        if value is not None:
            return value
    return None


def _candidates(text: str) -> Iterator[tuple[int, int]]:
    end = text.rfind("}") + 1
    if not end:
        return
    starts = (
        text.find("{", 0, end),
        text.rfind("\n{", 0, end) + 1,
        text.rfind("{", 0, end),
    )
    for start in dict.fromkeys(starts):
        inside = text.count("{", 0, start) > text.count("}", 0, start)
        if start >= 0 and text[start] == "{" and not inside:
            yield start, end


def _decoded(text: str, decode: Callable[[str], T | None]) -> T | None:
    try:
        return decode(text)
    except ValueError:
        pass
    except RecursionError:
        return None
    loose = _COMMENT.sub(_kept_string, text)
    try:
        return decode(_TRAILING_COMMA.sub(_kept_string, loose))
    except (ValueError, RecursionError):
        return None


def _object(text: str) -> _Pairs | None:
    value = _DECODER.decode(text)
    return value if isinstance(value, _Pairs) else None


def _strict_object(text: str) -> dict[str, Any] | None:
    value = _STRICT_DECODER.decode(text)
    return value if isinstance(value, dict) else None


def _kept_string(match: re.Match[str]) -> str:
    return match["string"] or ""


def _claim(members: _Pairs, span: tuple[int, int], text: str, reader: Reader) -> Claim | None:
    while (inner := _inner(members)) is not None:
        members = inner
    verdicts = {
        _verdict(value, reader) for key, value in members if reader.key.fullmatch(folded(key))
    }
    if not verdicts:
        return None
    reason = next((v for k, v in members if k.casefold() in _REASONS and isinstance(v, str)), "")
    return Claim(
        verdict=verdicts.pop() if len(verdicts) == 1 else None,
        start=span[0],
        end=span[1],
        final=says_nothing_after(text, span[1]),
        reason=reason,
    )


def _inner(members: _Pairs) -> _Pairs | None:
    """The object that is all there is in `members`, or the arguments of the call that they are."""
    if len(members) == 1 and isinstance(members[0][1], _Pairs):
        return members[0][1]
    if len(members) < 2 or not {key for key, _ in members} <= _OF_A_CALL:
        return None
    found = [_object_in(value) for _, value in members]
    objects = [value for value in found if value is not None]
    return objects[0] if len(objects) == 1 else None


def _object_in(value: Any) -> _Pairs | None:
    """A member that is an object, or the text of one, as calls have their arguments."""
    if isinstance(value, str) and "{" in value:
        return _decoded(value, _object)
    return value if isinstance(value, _Pairs) else None


def _verdict(value: Any, reader: Reader) -> Verdict | None:
    if isinstance(value, str):
        value = folded(plain(value))
        return _whole(reader.at(value, 0), value)
    return reader.of(value) if isinstance(value, float) else None


def _whole(reading: Reading | None, value: str) -> Verdict | None:
    if reading is None or not says_nothing_after(value, reading.end):
        return None
    return reading.verdict


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key is given twice")
    return members


_DECODER = json.JSONDecoder(
    object_pairs_hook=_Pairs, parse_int=float, parse_constant=_no_constant, strict=False
)
_STRICT_DECODER = json.JSONDecoder(
    object_pairs_hook=_each_key_once, parse_constant=_no_constant, strict=False
)
