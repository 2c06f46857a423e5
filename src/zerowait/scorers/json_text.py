"""Finds the JSON in a response, and reads it strictly."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any, Literal, NoReturn, TypeAlias

from zerowait.scorers.answers import last_answer

JsonPlace: TypeAlias = Literal["last", "whole"]

_FENCE = re.compile(r"```[ \t]*+(?:json[ \t]*+)?\n(.*?)```", re.DOTALL | re.IGNORECASE)
# What follows a bracket where it begins JSON: LaTeX is full of others.
_OPENING = re.compile(r"""\{(?=\s*+["}])|\[(?=\s*+["\[\]{\-0-9tfn])""")
_FIRST_WINDOW = 1024
_READ_AGAIN = 8
_LONGEST_WORD = 16
_UNTERMINATED = "Unterminated string"


def json_in(response: str, place: JsonPlace = "last") -> tuple[Any] | None:
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
    """The last object or array of `text` that is not inside of another one.

    Every bracket may begin a value that breaks off after thousands of characters. What is read for
    nothing is bounded by a few times the text's length, so that no response costs more than that.
    """
    found: tuple[Any] | None = None
    end, unspent = 0, _READ_AGAIN * len(text) + _FIRST_WINDOW
    for opening in _OPENING.finditer(text):
        if opening.start() < end:  # inside of the value before
            continue
        try:
            value, length = _value_at(text, opening.start())
        except RecursionError:  # and so would be every bracket of the thousands after it
            break
        except json.JSONDecodeError as error:
            unspent -= len(error.doc) if error.msg.startswith(_UNTERMINATED) else error.pos
            if unspent < 0:
                break
            continue
        except ValueError:  # a constant that JSON has not
            continue
        found, end = (value,), opening.start() + length
    return found


def _value_at(text: str, start: int) -> tuple[Any, int]:
    """The value that begins at `start`, and its length.

    It is looked for in a window that grows only where the value reaches its end: the decoder counts
    the lines before a fault from the text's beginning, which for each bracket of a long text takes
    as long as reading all of it.
    """
    size = _FIRST_WINDOW
    while True:
        window = text[start : start + size]
        try:
            return _DECODER.raw_decode(window)
        except json.JSONDecodeError as error:
            is_cut = error.msg.startswith(_UNTERMINATED) or error.pos > size - _LONGEST_WORD
            if start + size >= len(text) or not is_cut:
                raise
        size *= 4


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
