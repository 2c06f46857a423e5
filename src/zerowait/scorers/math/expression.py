r"""Scalar expressions: read from tokens to the last one, and evaluated exactly or to many digits.

Rational arithmetic is exact. What is irrational is evaluated by mpmath to as many digits as the
magnitudes in it ask for. What has no value (1/0, tan of a quarter turn, an infinity in a sum)
raises `UndefinedError`, and what is too large to be worth its time `TooLargeError`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NamedTuple, TypeAlias

from zerowait.scorers.math.latex import Token

_DEEPEST: Final = 40
_MOST_ATOMS: Final = 200  # the tree of a product is as deep as it has factors
_MOST_BITS: Final = 100_000
_LARGEST_FACTORIAL: Final = 3_000
_MOST_DIGITS: Final = 3_000
_LARGEST_EXACT_ROOT: Final = 64
_GREEK: Final = frozenset(
    [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "zeta",
        "eta",
        "theta",
        "iota",
        "kappa",
        "lambda",
        "mu",
        "nu",
        "xi",
        "rho",
        "sigma",
        "tau",
        "upsilon",
        "phi",
        "chi",
        "psi",
        "omega",
        "Gamma",
        "Delta",
        "Theta",
        "Lambda",
        "Xi",
        "Pi",
        "Sigma",
        "Upsilon",
        "Phi",
        "Psi",
        "Omega",
        "ell",
        "hbar",
    ]
)
_UNARY: Final = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "arcsin",
        "arccos",
        "arctan",
        "sinh",
        "cosh",
        "tanh",
        "ln",
        "lg",
        "log",
        "exp",
        "abs",
        "floor",
        "ceil",
        "cbrt",
        "surd",
        "zeta",
        "gamma",
    ]
)
_OF_SEVERAL: Final = frozenset({"gcd", "lcm", "max", "min"})
_TIMES: Final = {"*": "mul", "/": "div", "\\div": "div", "\\times": "mul", "\\cdot": "mul"}
_CLOSING: Final = {"(": ")", "[": "]", "{": "}", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil"}
_DECORATED: Final = frozenset(
    {"\\vec", "\\hat", "\\bar", "\\overline", "\\tilde", "\\mathcal", "\\dot"}
)
_SIGNS: Final = {"\\pm": 1, "\\mp": -1}


class UnreadableError(ValueError):
    """The tokens are no expression."""


class UndefinedError(ArithmeticError):
    """The expression has no value."""


class TooLargeError(ArithmeticError):
    """A number in the expression is too large to be computed."""


class Number(NamedTuple):
    """A rational number, and how it was written where that was as a decimal fraction."""

    value: Fraction
    digits: int | None = None
    """Its significant digits; None where it is exact."""
    unit: Fraction = Fraction(1)
    """What its last digit counts."""


class Name(NamedTuple):
    """A symbol, or one of the constants pi, e, i and infinity."""

    name: str


class Apply(NamedTuple):
    """An operation or a function, and what it is applied to."""

    function: str
    arguments: tuple[Expression, ...]


Expression: TypeAlias = Number | Name | Apply
ScalarValue: TypeAlias = Any
"""A Fraction, or a real or complex number of mpmath."""

PI: Final = Name("\\pi")
E: Final = Name("e")
I: Final = Name("i")  # noqa: E741 - the imaginary unit
INFINITY: Final = Name("\\infty")
_CONSTANTS: Final = frozenset({PI, E, I, INFINITY})


def decimal(text: str) -> Number:
    """The number that digits with grouping commas and a point are.

    >>> decimal("1,250.50").value, decimal("0.0050").digits
    (Fraction(2501, 2), 2)
    """
    text = text.replace(",", "")
    if len(text) > 1 and text[0] == "0" and text[1] != ".":
        raise UnreadableError(f"{text} begins with a zero")
    if len(text) > _MOST_DIGITS:
        raise TooLargeError(text[:20])
    whole, point, part = text.partition(".")
    if not point:
        return Number(Fraction(int(whole)))
    digits = (whole + part).lstrip("0")
    return Number(
        Fraction(int(whole + part or "0"), 10 ** len(part)),
        len(digits),
        Fraction(1, 10 ** len(part)),
    )


class ExpressionParser:
    """Recursive-descent parser over tokens; every method leaves `at` behind what it read."""

    def __init__(self, given: list[Token], *, sign: int = 1) -> None:
        self._given = given
        self._at = 0
        self._depth = 0
        self._atoms = 0
        self._bars = 0
        self._sign = sign

    def all(self) -> Expression:
        """The expression that all of the tokens are.

        Raises:
            UnreadableError: they are none, or something is left over.
        """
        found = self._sum()
        if self._at < len(self._given):
            raise UnreadableError(f"{self._given[self._at].text} is left over")
        return found

    def _peek(self) -> Token | None:
        return self._given[self._at] if self._at < len(self._given) else None

    def _is(self, *texts: str) -> bool:
        token = self._peek()
        return token is not None and token.kind != "words" and token.text in texts

    def _take(self, text: str) -> None:
        if not self._is(text):
            raise UnreadableError(f"{text} is missing")
        self._at += 1

    def _next(self) -> Token:
        token = self._peek()
        if token is None:
            raise UnreadableError("the end comes too early")
        self._at += 1
        return token

    def _sum(self) -> Expression:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise UnreadableError("nested too deeply")
        terms: list[Expression] = []
        sign = self._signs() if self._is("+", "-", *_SIGNS) else 1
        while True:
            term = self._product()
            terms.append(term if sign > 0 else _negated(term))
            if not self._is("+", "-", *_SIGNS):
                break
            sign = self._signs()
        self._depth -= 1
        return terms[0] if len(terms) == 1 else Apply("add", tuple(terms))

    def _signs(self) -> int:
        sign = 1
        while self._is("+", "-", *_SIGNS):
            text = self._next().text
            sign *= _SIGNS[text] * self._sign if text in _SIGNS else 1 if text == "+" else -1
        return sign

    def _product(self) -> Expression:
        found = self._power()
        while (token := self._peek()) is not None:
            if token.kind != "words" and token.text in _TIMES:
                self._at += 1
                sign = self._signs() if self._is("+", "-") else 1
                factor = self._power()
                factor = factor if sign > 0 else _negated(factor)
                found = Apply(_TIMES[token.text], (found, factor))
            elif self._is("\\choose"):
                self._at += 1
                found = Apply("binom", (found, self._power()))
            elif self._begins_factor(token):
                found = Apply("mul", (found, self._power()))
            else:
                break
        return found

    def _begins_factor(self, token: Token) -> bool:
        """Whether `token`, without a sign before it, is a factor of a product."""
        if token.kind == "number":
            return self._at > 0 and self._given[self._at - 1].text in (")", "]", "!")
        if token.kind in ("symbol", "letters"):
            return True
        if token.text == "|":
            return not self._bars
        return token.text in _CLOSING or (token.kind == "command" and _is_atom(token.text[1:]))

    def _power(self) -> Expression:
        base = self._atom()
        while (token := self._peek()) is not None:
            if token.text == "!" and token.kind == "mark":
                self._at += 1
                base = Apply("factorial", (base,))
            elif token.text == "^":
                self._at += 1
                if self._is_degrees():
                    base = Apply("degrees", (base,))
                    continue
                return Apply("pow", (base, self._exponent()))
            elif token.text == "'" and isinstance(base, Name):
                self._at += 1
                base = Name(f"{base.name}'")
            else:
                break
        return base

    def _is_degrees(self) -> bool:
        if self._is("\\circ"):
            self._at += 1
            return True
        inside = [each.text for each in self._given[self._at : self._at + 3]]
        if inside == ["{", "\\circ", "}"]:
            self._at += 3
            return True
        return False

    def _exponent(self) -> Expression:
        sign = self._signs() if self._is("+", "-") else 1
        if self._is("{", "("):
            found = self._bracketed(self._next().text)
            if self._is("!"):
                raise UnreadableError("a factorial behind an exponent can be read in two ways")
        else:
            found = self._atom(is_exponent=True)
        if self._is("^"):
            self._at += 1
            found = Apply("pow", (found, self._exponent()))
        return found if sign > 0 else _negated(found)

    def _bracketed(self, opening: str) -> Expression:
        bars, self._bars = self._bars, 0
        found = self._sum()
        self._take(_CLOSING[opening])
        self._bars = bars
        return found

    def _atom(self, *, is_exponent: bool = False) -> Expression:
        token = self._next()
        self._atoms += 1
        if self._atoms > _MOST_ATOMS:
            raise UnreadableError("too long")
        match token.kind:
            case "number":
                return decimal(token.text) if is_exponent else self._number(decimal(token.text))
            case "symbol":
                return self._named(token.text)
            case "letters":
                return self._letters(token.text)
            case "command":
                return self._command(token.text)
            case "mark" if token.text in _CLOSING:
                return self._bracketed(token.text)
            case "mark" if token.text == "|":
                self._bars += 1
                inside = self._sum()
                self._take("|")
                self._bars -= 1
                return Apply("abs", (inside,))
            case _:
                raise UnreadableError(f"{token.text} is no part of an expression")

    def _number(self, number: Number) -> Expression:
        r"""A number with its scientific exponent, or the whole part of a mixed one (2\frac13)."""
        if self._is("e", "E") and self._given[self._at].kind == "symbol":
            scaled = self._scaled(number)
            if scaled is not None:
                return scaled
        if number.digits is not None:
            if self._is("\\overline", "\\dot", "\\bar"):
                return self._repeating(number)
            return number
        part = self._given[self._at : self._at + 3]
        if part and part[0].text == "\\frac":
            return self._mixed(number)
        if len(part) == 3 and part[0].kind == part[2].kind == "number" and part[1].text == "/":
            top, bottom = decimal(part[0].text), decimal(part[2].text)
            if part[0].spaced and top.value < bottom.value and top.digits is bottom.digits is None:
                self._at += 3
                return Number(number.value + top.value / bottom.value)
        return number

    def _scaled(self, number: Number) -> Number | None:
        """1.5e-3; None where the e is the constant."""
        after = self._given[self._at + 1 : self._at + 3]
        signed = bool(after) and after[0].text in ("+", "-")
        digits = after[1:2] if signed else after[:1]
        if (
            not digits
            or digits[0].kind != "number"
            or any(each.spaced for each in after[: 1 + signed])
        ):
            return None
        exponent = decimal(digits[0].text)
        if exponent.digits is not None:
            return None
        if exponent.value > _MOST_DIGITS:
            raise TooLargeError(digits[0].text)
        self._at += 2 + signed
        power = Fraction(10) ** (
            int(exponent.value) * (-1 if signed and after[0].text == "-" else 1)
        )
        return Number(number.value * power, number.digits, number.unit * power)

    def _repeating(self, number: Number) -> Number:
        raise UnreadableError(f"{number} repeats")  # repeating decimals are spelt out before

    def _mixed(self, number: Number) -> Expression:
        before = self._at
        part = self._atom()
        if isinstance(part, Apply) and part.function == "div":
            top, bottom = part.arguments
            if (
                isinstance(top, Number)
                and isinstance(bottom, Number)
                and top.digits is bottom.digits is None
                and 0 < top.value < bottom.value
            ):
                return Number(number.value + top.value / bottom.value)
        self._at = before
        return number

    def _named(self, name: str) -> Expression:
        if self._is("_"):
            self._at += 1
            name = f"{name}_{self._subscript()}"
        return Name(name)

    def _subscript(self) -> str:
        if not self._is("{"):
            return self._next().text
        self._at += 1
        inside: list[str] = []
        while not self._is("}"):
            inside.append(self._next().text)
        self._at += 1
        return "".join(inside)

    def _letters(self, letters: str) -> Expression:
        """Letters side by side are a product, as the ab of 2ab; long runs of them are words."""
        if len(letters) > 4 or letters in _NO_PRODUCTS:
            raise UnreadableError(f"{letters} is a word")
        first, last = letters[:-1], letters[-1]
        found: Expression = Name(first[0])
        for each in first[1:]:
            found = Apply("mul", (found, Name(each)))
        if self._is("^"):  # ab^2 is a times b^2
            self._given[self._at - 1] = Token("symbol", last, spaced=False)
            self._at -= 1
            return Apply("mul", (found, self._power()))
        return Apply("mul", (found, self._named(last)))

    def _command(self, text: str) -> Expression:  # noqa: PLR0911 - a table of commands
        name = text[1:]
        if name == "pi":
            return PI
        if name == "infty":
            return INFINITY
        if text in ("\\frac", "\\binom"):
            top, bottom = self._argument(), self._argument()
            return Apply("div" if name == "frac" else "binom", (top, bottom))
        if name == "sqrt":
            return self._root()
        if name in _OF_SEVERAL:
            return self._of_several(name)
        if name in _UNARY and not (name == "gamma" and not self._is("(")):
            return self._function(name)
        if name == "Gamma" and self._is("("):
            return self._function("gamma")
        if text in ("\\lfloor", "\\lceil"):
            return Apply("floor" if name == "lfloor" else "ceil", (self._bracketed(text),))
        return self._letter(text)

    def _letter(self, text: str) -> Expression:
        if text in _DECORATED:
            return self._named(f"{text}{{{self._subscript()}}}")
        if text[1:] in _GREEK:
            return self._named(text)
        raise UnreadableError(f"{text} is not known")

    def _argument(self) -> Expression:
        r"""An argument in braces, or a single digit or letter: \frac12 is a half."""
        token = self._peek()
        if token is None or token.text == "{":
            return self._bracketed(self._next().text)
        if token.kind in ("number", "letters") and len(token.text) > 1:
            first, rest = token.text[0], token.text[1:]
            kind = "symbol" if token.kind == "letters" and len(rest) == 1 else token.kind
            self._given[self._at] = Token(kind, rest, spaced=False)
            return decimal(first) if token.kind == "number" else Name(first)
        self._at += 1
        match token.kind:
            case "number":
                return decimal(token.text)
            case "symbol":
                return Name(token.text)
            case "command":
                return self._command(token.text)
            case _:
                raise UnreadableError(f"{token.text} is no argument")

    def _root(self) -> Expression:
        degree: Expression = Number(Fraction(2))
        if self._is("["):
            degree = self._bracketed(self._next().text)
        if self._is("("):
            return Apply("root", (self._bracketed(self._next().text), degree))
        return Apply("root", (self._argument(), degree))

    def _of_several(self, name: str) -> Expression:
        opening = "{" if self._is("{", "\\{") else "("
        if self._is("\\{"):
            raise UnreadableError("a set is no argument")
        self._take(opening)
        found = [self._sum()]
        while self._is(","):
            self._at += 1
            found.append(self._sum())
        self._take(_CLOSING[opening])
        return Apply(name, tuple(found))

    def _function(self, name: str) -> Expression:
        base: Expression | None = None
        power: Expression | None = None
        while self._is("_", "^"):
            if self._next().text == "_":
                base = self._argument()
            else:
                power = self._exponent()
        argument = self._operand(is_root=name in ("surd", "cbrt"))
        if name in ("surd", "cbrt"):
            return Apply("root", (argument, Number(Fraction(2 if name == "surd" else 3))))
        found: Expression
        if name == "log" and base is not None:
            found = Apply("log_base", (argument, base))
        elif base is not None:
            raise UnreadableError(f"{name} has no base")
        else:
            found = Apply(name, (argument,))
        if power is None:
            return found
        if power == Number(Fraction(-1)):
            inverse = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}.get(name)
            if inverse is None:
                raise UnreadableError(f"the inverse of {name}")
            return Apply(inverse, (argument,))
        return Apply("pow", (found, power))

    def _operand(self, *, is_root: bool) -> Expression:
        """What a function without braces is applied to: factors up to a sign or a function."""
        if self._is("(", "{", "["):
            return self._bracketed(self._next().text)
        if is_root:
            return self._atom()
        found = self._power()
        while (token := self._peek()) is not None and (
            token.kind in ("symbol", "letters")
            or token.text in ("\\pi", "\\frac")
            or (
                token.kind == "command"
                and token.text[1:] in _GREEK
                and token.text[1:] not in _UNARY
            )
        ):
            found = Apply("mul", (found, self._power()))
        return found


_NO_PRODUCTS: Final = frozenset(
    [
        "nan",
        "zoo",
        "inf",
        "or",
        "and",
        "not",
        "none",
        "no",
        "yes",
        "true",
        "is",
        "if",
        "the",
        "dne",
        "undef",
        "of",
        "per",
    ]
)


def _is_atom(command: str) -> bool:
    return (
        command in _UNARY
        or command in _OF_SEVERAL
        or command in _GREEK
        or command in ("frac", "binom", "sqrt", "pi", "infty")
        or f"\\{command}" in _DECORATED
    )


def _negated(expression: Expression) -> Expression:
    if isinstance(expression, Number):
        return expression._replace(value=-expression.value)
    return Apply("neg", (expression,))


def symbols(expression: Expression) -> frozenset[str]:
    """The names of the free symbols of an expression."""
    if isinstance(expression, Name):
        return frozenset() if expression in _CONSTANTS else frozenset({expression.name})
    if isinstance(expression, Number):
        return frozenset()
    return frozenset().union(*(symbols(each) for each in expression.arguments))


def mentions(expression: Expression, name: Name) -> bool:
    """Whether `name` occurs in an expression."""
    if isinstance(expression, Apply):
        return any(mentions(each, name) for each in expression.arguments)
    return expression == name


@dataclass(slots=True)
class Evaluation:
    """How to evaluate an expression: the values of its symbols, the digits of what is irrational.

    `magnitude` becomes the largest power of ten, or of a tenth, that occurred.
    """

    points: Mapping[str, Fraction]
    digits: int = 50
    log_base: int | None = 10
    """The base of a logarithm without one; None for e."""
    magnitude: int = 0

    def __call__(self, expression: Expression) -> ScalarValue:
        """The value of `expression`.

        Raises:
            UndefinedError: it has none.
            TooLargeError: computing it would take too long.
        """
        if isinstance(expression, Number):
            return self._noted(expression.value)
        if isinstance(expression, Name):
            return self._name(expression)
        values = [self(each) for each in expression.arguments]
        return self._noted(_OPERATIONS[expression.function](self, *values))

    @property
    def mp(self) -> Any:
        """The context of mpmath of this thread, at this precision."""
        context = _contexts.__dict__.get("mp")
        if context is None:
            from mpmath import MPContext

            context = _contexts.mp = MPContext()
        context.dps = self.digits
        return context

    def real(self, value: ScalarValue) -> ScalarValue:
        """A value as mpmath has it."""
        if not isinstance(value, Fraction):
            return value
        mp = self.mp
        return mp.mpf(value.numerator) / mp.mpf(value.denominator)

    def is_zero(self, value: ScalarValue) -> bool:
        """Whether a value is zero, but for what its digits leave open."""
        if isinstance(value, Fraction):
            return value == 0
        return bool(abs(value) < self.mp.mpf(10) ** -(self.digits * 7 // 10))

    def _name(self, name: Name) -> ScalarValue:
        if name in _CONSTANTS:
            mp = self.mp
            if name == INFINITY:
                raise UndefinedError("infinity is no number")
            return +mp.pi if name == PI else +mp.e if name == E else mp.mpc(0, 1)
        return self.points[name.name]

    def _noted(self, value: ScalarValue) -> ScalarValue:
        """`value`, its magnitude noted."""
        if isinstance(value, Fraction):
            bits = max(value.numerator.bit_length(), value.denominator.bit_length())
            if bits > _MOST_BITS:
                raise TooLargeError(f"{bits} bits")
            if bits > 64:
                self.magnitude = max(self.magnitude, int(bits * 0.302))
            return value
        mp = self.mp
        if not mp.isfinite(value):
            raise UndefinedError("no finite value")
        if value:
            size = abs(mp.mag(value)) * 0.302
            if size > _MOST_BITS:
                raise TooLargeError("the magnitude")
            if size > 18:
                self.magnitude = max(self.magnitude, int(size))
        return value


_contexts = threading.local()
_Operation: TypeAlias = Callable[..., ScalarValue]


def _add(use: Evaluation, *values: ScalarValue) -> ScalarValue:
    if all(isinstance(each, Fraction) for each in values):
        return sum(values, Fraction(0))
    return use.mp.fsum(use.real(each) for each in values)


def _mul(use: Evaluation, one: ScalarValue, other: ScalarValue) -> ScalarValue:
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one * other
    return use.real(one) * use.real(other)


def _div(use: Evaluation, top: ScalarValue, bottom: ScalarValue) -> ScalarValue:
    if use.is_zero(bottom):
        raise UndefinedError("division by zero")
    if isinstance(top, Fraction) and isinstance(bottom, Fraction):
        return top / bottom
    return use.real(top) / use.real(bottom)


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _pow(use: Evaluation, base: ScalarValue, exponent: ScalarValue) -> ScalarValue:
    if use.is_zero(base):
        if use.is_zero(exponent) or not _is_positive(exponent):
            raise UndefinedError("zero to a power that is not positive")
        return Fraction(0)
    if not isinstance(exponent, Fraction):
        return _power_of_reals(use, base, exponent)
    if isinstance(base, Fraction):
        if exponent.denominator == 1:
            if base not in (1, -1) and abs(exponent) * _bits(base) > _MOST_BITS:
                raise TooLargeError("an exponent")
            return base ** (int(exponent) if abs(base) != 1 else int(exponent) % 2)
        return _root_of(use, base, exponent.denominator, exponent.numerator)
    if exponent.denominator == 1 and abs(exponent) < 10**6:
        return use.real(base) ** int(exponent)
    return _power_of_reals(use, base, exponent)


def _is_positive(exponent: ScalarValue) -> bool:
    return bool((exponent if isinstance(exponent, Fraction) else exponent.real) > 0)


def _power_of_reals(use: Evaluation, base: ScalarValue, exponent: ScalarValue) -> ScalarValue:
    mp = use.mp
    base, exponent = use.real(base), use.real(exponent)
    grows = exponent * mp.log(base)
    if abs(grows) > _MOST_BITS:
        raise TooLargeError("an exponent")
    return mp.exp(grows)


def _root_of(use: Evaluation, base: Fraction, degree: int, power: int = 1) -> ScalarValue:
    """The real root where there is one, exactly where that is rational."""
    if base < 0 and degree % 2:
        return _root_of(use, -base, degree, power) * (-1 if power % 2 else 1)
    if abs(power) * _bits(base) > _MOST_BITS or degree > _LARGEST_EXACT_ROOT:
        return _power_of_reals(use, base, Fraction(power, degree))
    if base > 0:
        top, bottom = _exact_root(base.numerator, degree), _exact_root(base.denominator, degree)
        if top is not None and bottom is not None:
            return Fraction(top, bottom) ** power
    mp = use.mp
    return mp.root(use.real(base), degree) ** power


def _exact_root(number: int, degree: int) -> int | None:
    if degree == 2:
        found = math.isqrt(number)
        return found if found * found == number else None
    if number == 1:
        return 1
    if number.bit_length() > 900:
        return None
    found = round(number ** (1 / degree))
    return found if found**degree == number else None


def _root(use: Evaluation, value: ScalarValue, degree: ScalarValue) -> ScalarValue:
    if use.is_zero(degree):
        raise UndefinedError("the zeroth root")
    if (
        isinstance(value, Fraction)
        and isinstance(degree, Fraction)
        and degree.denominator == 1
        and degree > 0
    ):
        return Fraction(0) if value == 0 else _root_of(use, value, int(degree))
    if isinstance(degree, Fraction) and degree.denominator == 1 and degree.numerator % 2:
        mp = use.mp
        value = use.real(value)
        if mp.im(value) == 0 and mp.re(value) < 0:
            return -mp.root(-mp.re(value), int(degree))
    return _pow(use, value, _div(use, Fraction(1), degree))


def _of_mpmath(name: str) -> _Operation:
    def operation(use: Evaluation, value: ScalarValue) -> ScalarValue:
        if (
            isinstance(value, Fraction)
            and value == 0
            and name in ("sin", "tan", "sinh", "tanh", "asin", "atan")
        ):
            return Fraction(0)
        value = use.real(value)
        if use.mp.mag(value) > 2000:
            raise TooLargeError(f"the argument of {name}")
        return getattr(use.mp, name)(value)

    return operation


def _over(top: str, bottom: str | None) -> _Operation:
    """Tan and the like as quotients, so that a pole is seen as a division by zero."""

    def operation(use: Evaluation, value: ScalarValue) -> ScalarValue:
        above = _of_mpmath(top)(use, value) if top != "1" else Fraction(1)
        return _div(use, above, _of_mpmath(str(bottom))(use, value))

    return operation


def _ln(use: Evaluation, value: ScalarValue) -> ScalarValue:
    if use.is_zero(value):
        raise UndefinedError("the logarithm of zero")
    return Fraction(0) if value == 1 else use.mp.log(use.real(value))


def _log_base(use: Evaluation, value: ScalarValue, base: ScalarValue) -> ScalarValue:
    below = _ln(use, base)
    if isinstance(value, Fraction) and isinstance(base, Fraction) and base > 1 and value > 0:
        exponent = (
            round(math.log(value) / math.log(base))
            if _bits(value) < 1000 and _bits(base) < 1000
            else 0
        )
        if abs(exponent) < 1000 and base**exponent == value:
            return Fraction(exponent)
    return _div(use, _ln(use, value), below)


def _log(use: Evaluation, value: ScalarValue) -> ScalarValue:
    return (
        _ln(use, value) if use.log_base is None else _log_base(use, value, Fraction(use.log_base))
    )


def _exp(use: Evaluation, value: ScalarValue) -> ScalarValue:
    return _pow(use, +use.mp.e, value)


def _factorial(use: Evaluation, value: ScalarValue) -> ScalarValue:
    if isinstance(value, Fraction) and value.denominator == 1:
        if value < 0:
            raise UndefinedError("the factorial of a negative number")
        if value > _LARGEST_FACTORIAL:
            raise TooLargeError("a factorial")
        return Fraction(math.factorial(int(value)))
    return _gamma(use, _add(use, value, Fraction(1)))


def _gamma(use: Evaluation, value: ScalarValue) -> ScalarValue:
    if isinstance(value, Fraction) and value.denominator == 1 and value <= 0:
        raise UndefinedError("a pole of gamma")
    value = use.real(value)
    if abs(value) > _LARGEST_FACTORIAL:
        raise TooLargeError("the argument of gamma")
    return use.mp.gamma(value)


def _binom(use: Evaluation, top: ScalarValue, bottom: ScalarValue) -> ScalarValue:
    if all(isinstance(each, Fraction) and each.denominator == 1 for each in (top, bottom)):
        if abs(top) > 10_000 or abs(bottom) > 10_000:
            raise TooLargeError("a binomial coefficient")
        if top >= 0:
            return Fraction(math.comb(int(top), int(bottom)) if bottom >= 0 else 0)
    if isinstance(bottom, Fraction) and bottom.denominator == 1 and 0 <= bottom < 50:
        found: ScalarValue = Fraction(1)
        for step in range(int(bottom)):
            found = _mul(use, found, _div(use, _add(use, top, Fraction(-step)), Fraction(step + 1)))
        return found
    return use.mp.binomial(use.real(top), use.real(bottom))


def _rounded(use: Evaluation, value: ScalarValue, down: Callable[[Any], int]) -> ScalarValue:
    if isinstance(value, Fraction):
        return Fraction(down(value))
    mp = use.mp
    near = mp.nint(mp.re(value))
    if mp.im(value):
        raise UndefinedError("the floor of a complex number")
    if use.is_zero(mp.re(value) - near):
        return Fraction(int(near))
    return Fraction(int(mp.floor(value) if down is math.floor else mp.ceil(value)))


def _whole(values: tuple[ScalarValue, ...]) -> list[int]:
    if not all(isinstance(each, Fraction) and each.denominator == 1 for each in values):
        raise UndefinedError("of whole numbers only")
    return [int(each) for each in values]


def _extreme(use: Evaluation, values: tuple[ScalarValue, ...], *, largest: bool) -> ScalarValue:
    mp = use.mp
    if any(mp.im(use.real(each)) for each in values):
        raise UndefinedError("complex numbers have no order")
    return (max if largest else min)(values, key=lambda each: mp.re(use.real(each)))


def _degrees(use: Evaluation, value: ScalarValue) -> ScalarValue:
    return use.real(value) * use.mp.pi / 180


def _abs(use: Evaluation, value: ScalarValue) -> ScalarValue:
    return abs(value) if isinstance(value, Fraction) else use.mp.fabs(value)


def _zeta(use: Evaluation, value: ScalarValue) -> ScalarValue:
    if value == 1:
        raise UndefinedError("the pole of zeta")
    value = use.real(value)
    if abs(value) > 100:
        raise TooLargeError("the argument of zeta")
    return use.mp.zeta(value)


_OPERATIONS: Final[dict[str, _Operation]] = {
    "add": _add,
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "neg": lambda _, value: -value,
    "root": _root,
    "factorial": _factorial,
    "binom": _binom,
    "degrees": _degrees,
    "abs": _abs,
    "sin": _of_mpmath("sin"),
    "cos": _of_mpmath("cos"),
    "tan": _over("sin", "cos"),
    "cot": _over("cos", "sin"),
    "sec": _over("1", "cos"),
    "csc": _over("1", "sin"),
    "arcsin": _of_mpmath("asin"),
    "arccos": _of_mpmath("acos"),
    "arctan": _of_mpmath("atan"),
    "sinh": _of_mpmath("sinh"),
    "cosh": _of_mpmath("cosh"),
    "tanh": _of_mpmath("tanh"),
    "ln": _ln,
    "lg": lambda use, value: _log_base(use, value, Fraction(10)),
    "log": _log,
    "log_base": _log_base,
    "exp": _exp,
    "zeta": _zeta,
    "gamma": _gamma,
    "floor": lambda use, value: _rounded(use, value, math.floor),
    "ceil": lambda use, value: _rounded(use, value, math.ceil),
    "gcd": lambda _, *values: Fraction(math.gcd(*_whole(values))),
    "lcm": lambda _, *values: Fraction(math.lcm(*_whole(values))),
    "max": lambda use, *values: _extreme(use, values, largest=True),
    "min": lambda use, *values: _extreme(use, values, largest=False),
}
