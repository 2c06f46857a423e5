"""The JSON that a response holds, read strictly."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any, Literal, NoReturn, TypeAlias

from zerowait.scorers.answer import last_answer

Place: TypeAlias = Literal["last", "whole"]

_FENCE = re.compile(r"```[ \t]*+(?:json[ \t]*+)?\n(.*?)```", re.DOTALL | re.IGNORECASE)
_OPENING = re.compile(r"[\[{]")


def json_in(response: str, place: Place = "last") -> tuple[Any] | None:
    r"""The JSON value of a response, in a tuple of one; None when there is none.

    Args:
        response: the text.
        place: ``whole``: the response is nothing but JSON. ``last``: the last ``<answer>``, the
            last fenced block or else the last object or array in the text.

    >>> json_in('Here: {"a": 1} and then {"a": 2}.')
    ({'a': 2},)
    >>> json_in('{"a": NaN}') is None, json_in('so {"a": 1}', "whole") is None
    (True, True)
    """
    if place == "whole":
        return _read(response)
    answer = last_answer(response)
    text = response if answer is None else answer
    blocks = _FENCE.findall(text)
    return _read(blocks[-1] if blocks else text) or _last_value(text)


def strict_json(text: str) -> Any:
    """The value that `text` is, where that can mean one thing only.

    Raises:
        ValueError: it is no JSON, an object gives a key twice, or a number is beyond a float.

    >>> strict_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: 'a' is given twice
    """
    return _STRICT.decode(text.strip())


def _read(text: str) -> tuple[Any] | None:
    try:
        return (_DECODER.decode(text.strip()),)
    except (ValueError, RecursionError):
        return None


def _last_value(text: str) -> tuple[Any] | None:
    found: tuple[Any] | None = None
    end = 0
    for opening in _OPENING.finditer(text):
        if opening.start() < end:  # inside of the value before
            continue
        try:
            value, end = _DECODER.raw_decode(text, opening.start())
        except RecursionError:  # and so would be every bracket of the thousands after it
            break
        except ValueError:
            continue
        found = (value,)
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits:.40} is beyond a float")
    return number


def _each_once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        seen = Counter(key for key, _ in members)
        raise ValueError(f"{seen.most_common(1)[0][0]!r:.40} is given twice")
    return found


_DECODER = json.JSONDecoder(parse_constant=_no_number)
_STRICT = json.JSONDecoder(
    parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_each_once
)
