"""Whether an output, or a returned value, is the expected one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal, TypeAlias

Compare: TypeAlias = Literal["lines", "tokens", "exact"]
"""How outputs are compared: line by line without outer white space, only the words, or the text."""

_NUMBER: Final = re.compile(  # not 007, which may be a code or binary digits
    r"[+-]?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII
)
_LONGEST_NUMBER: Final = 400


def same_output(said: str, expected: str, *, compare: Compare, tolerance: float) -> bool:
    r"""Whether a program's output `said` is the `expected` one.

    Outer white space never counts. For ``lines``, white space within a line separates words, and
    empty lines at the end do not count; for ``tokens``, line breaks are white space, too. Two words
    are the same where they are equal, or are equal numbers; where the expected number has a decimal
    point, they may differ by `tolerance`, relatively or absolutely. For ``exact`` only a line break
    at the end does not count.

    >>> same_output("1  2 \n0.3333333\n", "1 2\n0.33333333", compare="lines", tolerance=1e-6)
    True
    >>> same_output("1 2", "1\n2", compare="lines", tolerance=0), same_output(
    ...     "1 2", "1\n2", compare="tokens", tolerance=0
    ... )
    (False, True)
    """
    if compare == "exact":
        return said.removesuffix("\n") == expected.removesuffix("\n")
    if said.split() == expected.split() and compare == "tokens":
        return True
    said_rows, rows = (
        ([text.split()] if compare == "tokens" else [line.split() for line in _lines(text)])
        for text in (said, expected)
    )
    if len(said_rows) != len(rows):
        return False
    return all(
        len(one) == len(other)
        and all(_same_word(a, b, tolerance) for a, b in zip(one, other, strict=True))
        for one, other in zip(said_rows, rows, strict=True)
    )


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").strip().split("\n")


def _same_word(said: str, expected: str, tolerance: float) -> bool:
    if said == expected:
        return True
    one, other = _number(said), _number(expected)
    if one is None or other is None:
        return False
    if one == other:
        return True
    if not any(mark in expected for mark in ".eE"):
        return False
    # not as floats: 1e400 and 2e400 would be the same infinity
    return abs(one - other) <= Decimal(tolerance) * max(Decimal(1), abs(one), abs(other))


def _number(word: str) -> Decimal | None:
    if len(word) > _LONGEST_NUMBER or not _NUMBER.fullmatch(word):
        return None
    try:
        return Decimal(word)
    except InvalidOperation:
        return None


def same_value(said: Any, expected: Any, *, tolerance: float) -> bool:
    """Whether a returned value is the `expected` one, which comes from JSON.

    Tuples are lists, the keys of mappings are compared as text where JSON had to make them text,
    and floats may differ by `tolerance`.

    >>> same_value([1, (2.0000000001, "a")], [1, [2.0, "a"]], tolerance=1e-6)
    True
    >>> same_value({1: "a"}, {"1": "a"}, tolerance=0), same_value(True, "True", tolerance=0)
    (True, False)
    """
    if isinstance(said, float) or isinstance(expected, float):
        return _same_float(said, expected, tolerance)
    if isinstance(said, Mapping) and isinstance(expected, Mapping):
        return _same_mapping(said, expected, tolerance)
    if _is_list(said) and _is_list(expected):
        return len(said) == len(expected) and all(
            same_value(a, b, tolerance=tolerance) for a, b in zip(said, expected, strict=True)
        )
    if _is_list(said) or isinstance(said, Mapping):
        return False
    return bool(said == expected)


def _same_float(said: Any, expected: Any, tolerance: float) -> bool:
    if not isinstance(said, int | float) or not isinstance(expected, int | float):
        return False
    if said == expected:
        return True
    try:
        return math.isclose(said, expected, rel_tol=tolerance, abs_tol=tolerance)
    except OverflowError:  # a whole number beyond all floats
        return False


def _same_mapping(said: Mapping[Any, Any], expected: Mapping[Any, Any], tolerance: float) -> bool:
    if len(said) != len(expected):
        return False
    by_text = {str(key): value for key, value in said.items()}
    return all(
        str(key) in by_text and same_value(by_text[str(key)], value, tolerance=tolerance)
        for key, value in expected.items()
    )


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | range)


class _Unreadable:
    def __repr__(self) -> str:
        return "<no plain data>"


UNREADABLE: Final = _Unreadable()
"""Stands for an object that is no plain data; it equals nothing else."""


def plain(data: Any) -> Any:
    """The value in a result of the harness; what JSON has not is equal to nothing, sets apart.

    >>> plain({"t": [1, {"d": "0.5"}, {"m": [["a", {"i": "0x10"}]]}]})
    [1, 0.5, {'a': 16}]
    """
    if isinstance(data, list):
        return [plain(each) for each in data]
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    leaves: dict[str, Callable[[Any], Any]] = {
        "t": plain,
        "n": plain,
        "named": lambda parts: plain(parts[1]),
        "d": float,
        "i": lambda digits: int(digits, 16),
        "m": lambda items: {_key(plain(key)): plain(value) for key, value in items},
    }
    return leaves[kind](content) if kind in leaves else UNREADABLE


def _key(key: Any) -> Any:
    return repr(key) if isinstance(key, list | dict) else key
