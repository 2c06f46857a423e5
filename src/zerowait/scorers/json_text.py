"""The JSON that a response holds, read strictly."""

from __future__ import annotations

import json
import re
from typing import Any, Literal, NoReturn, TypeAlias

from zerowait.scorers.answer import last_answer

Place: TypeAlias = Literal["last", "whole"]

_FENCE = re.compile(r"```[ \t]*(?:json)?[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
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


_DECODER = json.JSONDecoder(parse_constant=_no_number)
