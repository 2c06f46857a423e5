"""Whether two scalar expressions are equal: exactly, and wherever the gold one has a real value.

Rational numbers are compared as such. What is irrational is compared to as many digits as the
magnitudes in it ask for, and expressions with free symbols at rational points that are drawn from
a hash of both, so that every process comes to the same result and no answer can be made to fit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from zerowait.scorers.math.expression import (
    Apply,
    Evaluation,
    Expression,
    Number,
    TooLargeError,
    UndefinedError,
    symbols,
)

_POINTS: Final = 8
_FIRST_DIGITS: Final = 50
_MOST_DIGITS: Final = 3_000
_BASES: Final = (10, None)


def equal(gold: Expression, said: Expression, *, decimals: int) -> bool:
    """Whether the two are equal wherever `gold` is real, for one base of a bare logarithm.

    A decimal fraction equals what it is the rounding of, if it has at least `decimals` significant
    digits. `said` may have no symbol that `gold` has not.
    """
    if isinstance(gold, Number) and isinstance(said, Number):
        return (
            gold.value == said.value
            or rounds(gold, said.value, decimals)
            or rounds(said, gold.value, decimals)
        )
    names = symbols(gold)
    if not symbols(said) <= names or (names and not symbols(said)):
        return False
    bases = _BASES if _has_log(gold) or _has_log(said) else _BASES[:1]
    return any(_equal_with(base, gold, said, sorted(names), decimals) for base in bases)


def value_of(expression: Expression, points: Mapping[str, Fraction] | None = None) -> Any:
    """The value of an expression, at points of its symbols if it has any.

    Raises:
        UndefinedError: it has none.
        TooLargeError: computing it would take too long.
    """
    return _evaluated(expression, points or {}, 10, _FIRST_DIGITS)[0]


def ratio_is_constant(one: Expression, other: Expression) -> int:
    """The sign of the constant by which `other` is a multiple of `one`; 0 where it is none."""
    names = sorted(symbols(one))
    if names != sorted(symbols(other)):
        return 0
    found: list[Any] = []
    for points in _points(names, one, other):
        try:
            use = Evaluation(points)
            first, second = use(one), use(other)
        except UndefinedError:
            continue
        if use.is_zero(first) or use.is_zero(second):
            if use.is_zero(first) != use.is_zero(second):
                return 0
            continue
        if isinstance(first, Fraction) and isinstance(second, Fraction):
            found.append(second / first)
        else:
            found.append(use.real(second) / use.real(first))
    return _sign_of_all(found)


def _sign_of_all(ratios: list[Any]) -> int:
    use = Evaluation({})
    first = ratios[0] if ratios else Fraction(0)
    if isinstance(first, Fraction):
        return 0 if any(each != first for each in ratios) else (first > 0) - (first < 0)
    if use.mp.im(first) or not all(use.is_zero(use.real(each) - first) for each in ratios):
        return 0
    return 1 if first.real > 0 else -1


def differ_by_a_constant(one: Expression, other: Expression) -> bool:
    """Whether the difference of two expressions of the same symbols is the same everywhere."""
    names = sorted(symbols(one))
    if not names or names != sorted(symbols(other)):
        return False
    difference = Apply("add", (one, Apply("neg", (other,))))
    found: list[Any] = []
    for points in _points(names, one, other):
        try:
            use = Evaluation(points)
            found.append(use(difference))
        except UndefinedError:
            continue
    use = Evaluation({})
    return len(found) > 1 and all(
        use.is_zero(use.real(each) - use.real(found[0])) for each in found
    )


def rounds(written: Number, value: Any, decimals: int) -> bool:
    """Whether a decimal fraction is `value`, rounded to its digits, of which there are enough."""
    if written.digits is None or written.digits < decimals:
        return False
    if not isinstance(value, Fraction):
        return False
    return abs(written.value - value) * 2 <= written.unit


def _equal_with(
    log_base: int | None, gold: Expression, said: Expression, names: list[str], decimals: int
) -> bool:
    if not names:
        return _equal_at({}, log_base, gold, said, decimals)[1]
    compared = 0
    others: list[bool] = []
    for points in _points(names, gold, said):
        try:
            is_real, is_equal = _equal_at(points, log_base, gold, said, decimals)
        except UndefinedError:
            continue
        if is_real:
            compared += 1
            if not is_equal:
                return False
        else:
            others.append(is_equal)
    return compared > 0 or (bool(others) and all(others))


def _equal_at(
    points: Mapping[str, Fraction],
    log_base: int | None,
    gold: Expression,
    said: Expression,
    decimals: int,
) -> tuple[bool, bool]:
    """Whether `gold` is real at the points, and whether the two are equal there."""
    digits, magnitude = _FIRST_DIGITS, 0
    while True:
        one, first = _evaluated(gold, points, log_base, digits)
        is_real = _is_real(one, first)
        try:
            other, second = _evaluated(said, points, log_base, digits)
        except UndefinedError:
            return is_real, False
        if isinstance(one, Fraction) and isinstance(other, Fraction) and one == other:
            return is_real, True
        if _rounds_to(gold, other, decimals) or _rounds_to(said, one, decimals):
            return is_real, True
        if isinstance(one, Fraction) and isinstance(other, Fraction):
            return is_real, False
        gap = abs(first.real(one) - first.real(other))
        size = max(abs(first.real(one)), abs(first.real(other)), 1)
        if digits > _FIRST_DIGITS:
            return is_real, bool(gap <= size * first.mp.mpf(10) ** -(30 + 3 * magnitude // 2))
        magnitude = max(first.magnitude, second.magnitude)
        if gap > size * first.mp.mpf(10) ** (magnitude - 40):
            return is_real, False
        digits = 60 + 3 * magnitude
        if digits > _MOST_DIGITS:
            raise TooLargeError("the digits that a comparison needs")


def _evaluated(
    expression: Expression, points: Mapping[str, Fraction], log_base: int | None, digits: int
) -> tuple[Any, Evaluation]:
    """The value of an expression; what seems to be zero is looked at with more digits."""
    use = Evaluation(points, digits, log_base)
    try:
        return use(expression), use
    except UndefinedError:
        more = digits + 2 * use.magnitude
        if not use.magnitude or more > _MOST_DIGITS:
            raise
    use = Evaluation(points, more, log_base)
    return use(expression), use


def _is_real(value: Any, use: Evaluation) -> bool:
    return isinstance(value, Fraction) or use.is_zero(use.mp.im(value))


def _rounds_to(written: Expression, value: Any, decimals: int) -> bool:
    sign = 1
    if isinstance(written, Apply) and written.function == "neg":
        sign, written = -1, written.arguments[0]
    if not isinstance(written, Number) or written.digits is None or written.digits < decimals:
        return False
    use = Evaluation({})
    gap = use.real(value) * sign - use.real(written.value)
    return bool(abs(gap) * 2 <= use.real(written.unit) * (1 + use.mp.mpf(10) ** -20))


def _has_log(expression: Expression) -> bool:
    return isinstance(expression, Apply) and (
        expression.function == "log" or any(map(_has_log, expression.arguments))
    )


def _points(names: list[str], one: Expression, other: Expression) -> Iterator[dict[str, Fraction]]:
    """Rational points of every sign, on both sides of 1, drawn from a hash of both expressions."""
    seed = repr((names, one, other)).encode()
    for index in range(_POINTS):
        drawn = hashlib.shake_128(seed + bytes([index])).digest(5 * len(names))
        point: dict[str, Fraction] = {}
        for nth, name in enumerate(names):
            part = drawn[5 * nth : 5 * nth + 5]
            size = Fraction(int.from_bytes(part[:4], "big") % 999_983 + 1, 1_000_003)
            if index in (1, 2, 5, 7):
                size = 1 + 8 * size
            negative = part[4] % 2 if index not in (0, 1, 2, 3) else index == 3
            point[name] = -size if negative else size
        yield point
