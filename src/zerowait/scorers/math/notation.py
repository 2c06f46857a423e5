r"""Answers in mathematical notation: sets, intervals, matrices, equations, and their parts.

`read_answer` reads the forms that are no expression (a time of day, a numeral with its base, a
date), then matrices and systems, and what is left with `_AnswerParser`. The whole text becomes an
answer or none: nothing is skipped. `zerowait.scorers.math.comparison.same` compares two answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from zerowait.patterns import lazy_pattern
from zerowait.scorers.answers import canonical
from zerowait.scorers.math.equality import equal
from zerowait.scorers.math.expression import (
    INFINITY,
    Apply,
    Expression,
    ExpressionParser,
    Name,
    Number,
    TooLargeError,
    UndefinedError,
    UnreadableError,
    decimal,
    symbols,
)
from zerowait.scorers.math.latex import WORDS_BEGIN, WORDS_END, Token, latex_tokens
from zerowait.scorers.math.unit import in_base_unit, unit_of


class Quantity(NamedTuple):
    """A value with the unit, words or percent sign around it."""

    value: MathAnswer
    unit: str = ""
    """A unit that is known, in one spelling."""
    words: str = ""
    """Other words: the apples of 5 apples."""
    is_percent: bool = False


class AnswerGroup(NamedTuple):
    """Items in brackets: a tuple, a point, a vector, an interval or a set."""

    brackets: str
    """``()``, ``[]``, ``(]``, ``[)``, ``<>``, or ``{}`` for a set."""
    items: tuple[MathAnswer, ...]


class Several(NamedTuple):
    """Several answers without brackets, and what joins them: ``or``, ``and`` or a comma."""

    items: tuple[MathAnswer, ...]
    joint: str


class SetOperation(NamedTuple):
    r"""``\cup``, ``\cap`` or ``\setminus`` of two sets."""

    operation: str
    left: MathAnswer
    right: MathAnswer


class NumberSet(NamedTuple):
    """R, Q, Z, N or C; an empty name is the empty set."""

    name: str


class Matrix(NamedTuple):
    """Rows of entries."""

    rows: tuple[tuple[MathAnswer, ...], ...]


class Assigned(NamedTuple):
    """A name (x, f(x), AB) and the value given to it."""

    name: str
    value: MathAnswer


class Member(NamedTuple):
    """A name that is an element of a set."""

    name: str
    of: MathAnswer


class Relation(NamedTuple):
    r"""Sides, and the relation between each two: ``=``, ``<``, ``>``, ``\le``, ``\ge``, ``\ne``."""

    sides: tuple[Expression, ...]
    relations: tuple[str, ...]


class Congruence(NamedTuple):
    """Equality up to multiples of `modulus`; `left` is None in 3 mod 7."""

    left: Expression | None
    residue: Expression
    modulus: Expression


class Ratio(NamedTuple):
    """Numbers with colons between them."""

    parts: tuple[Expression, ...]


class Numeral(NamedTuple):
    """Digits in the base that is written behind them."""

    digits: str
    base: str


class Time(NamedTuple):
    """A time of day; `half` is a or p, or empty where it was not said."""

    hour: int
    minute: int
    second: int
    half: str


class Approximated(NamedTuple):
    """A value, and the decimal fraction that was written behind it."""

    exact: MathAnswer
    written: MathAnswer


class Choice(NamedTuple):
    """The letter of a choice, and its text where that was repeated."""

    letter: str
    text: MathAnswer | None


class WordsAnswer(NamedTuple):
    """An answer in words, or a date."""

    key: str


MathAnswer: TypeAlias = (
    Number | Name | Apply | Quantity | AnswerGroup | Several | SetOperation | NumberSet | Matrix
    | Assigned | Member | Relation | Congruence | Ratio | Numeral | Time | Approximated | Choice
    | WordsAnswer
)  # fmt: skip

_UNMARKED: Final = str.maketrans("", "", WORDS_BEGIN + WORDS_END)
_DEEPEST: Final = 12
_MOST_ITEMS: Final = 200
_OPENING: Final = {"(": ")", "[": "]", "{": "}", "\\{": "\\}", "\\langle": "\\rangle",
                   "\\lfloor": "\\rfloor", "\\lceil": "\\rceil"}  # fmt: skip
_CLOSING: Final = frozenset(_OPENING.values())
_RELATIONS: Final = frozenset({"=", "<", ">", "\\le", "\\ge", "\\ne", "\\approx", "\\sim"})
_SET_OPERATIONS: Final = frozenset({"\\cup", "\\cap", "\\setminus"})
_SIGNS: Final = frozenset({"\\pm", "\\mp"})
_MONEY: Final = {
    "\\$": "dollar",
    "\u20ac": "euro",
    "\u00a3": "pound",
    "\u00a5": "yen",
    "\u20b9": "rupee",
    "\u00a2": "cent",
}
_EMPTY: Final = frozenset(
    [
        "no solution",
        "no solutions",
        "no real solution",
        "no real solutions",
        "empty set",
        "the empty set",
        "no real roots",
    ]
)
_ALL_REALS: Final = frozenset(
    [
        "all real numbers",
        "all reals",
        "all real number",
        "real numbers",
        "all real x",
        "any real number",
    ]
)
_NUMBERS: Final = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
)
_SAME_WORDS: Final = {"does not exist": "dne", "limit does not exist": "dne", "doesnt exist": "dne"}
_SCALES: Final = {
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "dozen": 12,
}
_CELSIUS: Final = {
    "degrees Celsius": "C",
    "degrees Fahrenheit": "F",
    "degrees C": "C",
    "degrees F": "F",
}
_PERCENT: Final = frozenset({"percent", "pct", "percentage", "per cent"})
_UNSURE: Final = lazy_pattern(
    r"\b(?:or|and|not|maybe|perhaps|possibly|if|but|unless|either|never|isn|when|where|to|than|no|nan|zoo|undefined"
    r"|undef|dne|inf|infinite)\b",
    re.IGNORECASE,
)
_PLAIN_WORDS: Final = lazy_pattern(r"[^\d^/*(){}_\\]+|(?:square |cubic )?units? ?\^ ?\{?\d\}?")
_GENERIC: Final = frozenset(
    {"unit", "units", "square unit", "square units", "sq units", "cubic units", "in total"}
)
_CALL: Final = frozenset("fghFGHPpqSTVvyuwQLMN")
_DERIVATIVE: Final = lazy_pattern(
    r"[a-zA-Z]'{1,3}(?:\([a-z]\))?|\\frac\{d(?:\^\{?2\}?)?[a-z]?\}\{d[a-z](?:\^\{?2\}?)?\}|d[a-z]/d[a-z]"
    r"|[fgh]\^\{-1\}\([a-z]\)|P\([^()]*\)"
)
_CAPITALS: Final = lazy_pattern(r"[A-Z]{2,}'?")
_TIME: Final = lazy_pattern(r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s*(?:([aApP])\.?\s*[mM]\.?)?")
_NUMERAL: Final = lazy_pattern(r"([0-9A-F]+)_(?:\{\s*(\d{1,2})\s*\}|(\d{1,2}))")
_ISO_DATE: Final = lazy_pattern(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})")
_SLASH_DATE: Final = lazy_pattern(r"(\d{1,2})/(\d{1,2})/(\d{4})")
_MONTHS: Final = [
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
]
_NAMED_DATE: Final = lazy_pattern(
    r"(?:(?P<day>\d{1,2})(?:st|nd|rd|th)?\s+(?:of\s+)?)?(?P<month>(?i:"
    + "|".join(_MONTHS)
    + r")[a-z]*)\.?"
    r"(?:\s+(?P<after>\d{1,2})(?:st|nd|rd|th)?(?!\d))?(?:,?\s+(?P<year>\d{4}))?"
)
_MATRIX: Final = lazy_pattern(
    r"\\begin\{(?P<kind>[pbvBV]?matrix|smallmatrix|array)\}(?:\{[^{}]*\})?(?P<inside>.*)"
    r"\\end\{(?P=kind)\}(?P<after>.*)",
    re.DOTALL,
)
_CASES: Final = lazy_pattern(r"\\begin\{(cases|aligned|array|gathered)\}(.*)\\end\{\1\}", re.DOTALL)
_COLUMNS: Final = lazy_pattern(r"(\\begin\{array\})\{[lcr| ]*\}")
_LETTER: Final = lazy_pattern(r"[A-J]")


def read_answer(spelling: str, *, grouped: bool = True) -> MathAnswer:
    """The answer that a plain spelling is.

    Args:
        spelling: of which `plain_spelling` is the result.
        grouped: read 1,234 as one number; otherwise as two.

    Raises:
        UnreadableError: it is none.
        TooLargeError: a number in it is too large.
    """
    found = _special(spelling)
    if found is not None:
        return found
    if "\\begin" in spelling:
        return _environment(spelling, grouped=grouped)
    given = latex_tokens(spelling, grouped=grouped)
    if not given:
        raise UnreadableError("it is empty")
    return _AnswerParser().answer(given)


def times_of_day(spelling: str) -> Time | None:
    """The time that 12:30 or 1:05 pm is; None for other texts."""
    match = _TIME.fullmatch(spelling)
    if match is None or int(match[1]) > 24 or int(match[2]) > 59:
        return None
    return Time(int(match[1]), int(match[2]), int(match[3] or 0), (match[4] or "").lower())


def in_words(spelling: str) -> WordsAnswer | None:
    """A text as an answer in words; None without any word."""
    date = _date(spelling)
    if date is not None:
        return date
    bare = spelling.replace(WORDS_BEGIN, " ").replace(WORDS_END, " ")
    plain = all(char.isalpha() or char.isspace() or char in "'-.,!\u2019" for char in bare)
    key = canonical(bare.replace("-", " "))
    return WordsAnswer(key) if plain and key else None


def _special(spelling: str) -> MathAnswer | None:
    if ":" in spelling and (time := times_of_day(spelling.translate(_UNMARKED))) is not None:
        return time
    if "_" in spelling:
        bare = spelling.translate(_UNMARKED).replace(" ", "")
        bare = re.sub(r"\A[({](.*)[)}](?=_)", r"\1", bare)
        if (numeral := _NUMERAL.fullmatch(bare)) is not None:
            return Numeral(numeral[1].lstrip("0") or "0", str(int(numeral[2] or numeral[3])))
    return _date(spelling)


def _date(spelling: str) -> WordsAnswer | None:
    if (iso := _ISO_DATE.fullmatch(spelling)) is not None:
        return WordsAnswer("date {}-{}-{}".format(*map(int, iso.groups())))
    if (slash := _SLASH_DATE.fullmatch(spelling)) is not None:
        return WordsAnswer("date {}/{}/{}".format(*map(int, slash.groups())))
    bare = spelling.translate(_UNMARKED)
    named = _NAMED_DATE.fullmatch(bare.strip()) if any(char.isdigit() for char in bare) else None
    if named is None or (named["day"] and named["after"]):
        return None
    month = _MONTHS.index(named["month"][:3].lower()) + 1
    return WordsAnswer(
        f"date {named['year'] or ''}-{month}-{int(named['day'] or named['after'] or 0)}"
    )


def _environment(spelling: str, *, grouped: bool) -> MathAnswer:
    cases = _CASES.fullmatch(spelling)
    if cases is None and spelling.startswith("\\{"):
        cases = _CASES.fullmatch(_COLUMNS.sub(r"\1", spelling[2:].strip()))
    elif cases is not None and cases[1] == "array":
        cases = None
    if cases is not None:
        lines = [line.replace("&", " ").strip(" ,;.") for line in cases[2].split("\\\\")]
        items = tuple(read_answer(line, grouped=grouped) for line in lines if line)
        return _flattened(items, "and")
    before, _, _ = spelling.partition("\\begin")
    matrix = _MATRIX.fullmatch(spelling, len(before))
    if matrix is None:
        raise UnreadableError("an environment that is not known")
    if matrix["kind"] in ("vmatrix", "Vmatrix"):
        raise UnreadableError("a determinant or a norm, and no matrix")
    if matrix["after"].strip() == "^T" or matrix["after"].strip() in ("^{T}", "^\\top", "^{\\top}"):
        rows = _cells(matrix["inside"], grouped=grouped)
        return Matrix(tuple(zip(*rows, strict=True)))
    before = before.strip(" ([*")
    if matrix["after"].strip(" )]"):
        raise UnreadableError("something stands behind a matrix")
    rows = _cells(matrix["inside"], grouped=grouped)
    if before.endswith("="):
        return Assigned(before[:-1].strip(), Matrix(rows))
    return Matrix(rows) if not before else _scaled(before, rows)


def _cells(inside: str, *, grouped: bool) -> tuple[tuple[MathAnswer, ...], ...]:
    lines = [line for line in inside.replace("\\cr", "\\\\").split("\\\\") if line.strip()]
    rows = tuple(
        tuple(
            read_answer(cell.strip(), grouped=grouped)
            for cell in line.replace("\\hline", "").split("&")
        )
        for line in lines
    )
    if not rows or len({len(row) for row in rows}) > 1:
        raise UnreadableError("rows of different lengths")
    return rows


def _scaled(factor: str, rows: tuple[tuple[MathAnswer, ...], ...]) -> Matrix:
    by = Number(Fraction(-1)) if factor == "-" else _AnswerParser().answer(latex_tokens(factor))
    if not isinstance(by, Number | Name | Apply):
        raise UnreadableError("the factor of a matrix")

    def times(cell: MathAnswer) -> MathAnswer:
        if not isinstance(cell, Number | Name | Apply):
            raise UnreadableError("an entry of a matrix")
        return Apply("mul", (by, cell))

    return Matrix(tuple(tuple(map(times, row)) for row in rows))


class _AnswerParser:
    """Parses notation from the loosest to the tightest binding: lists, relations, sets, values."""

    def __init__(self) -> None:
        self._depth = 0
        self._items = 0
        self._sign = 0

    def answer(self, given: list[Token]) -> MathAnswer:
        self._depth += 1
        self._items += 1
        if self._depth > _DEEPEST or self._items > _MOST_ITEMS:
            raise UnreadableError("nested too deeply")
        try:
            return self._listed(_unbraced(given))
        finally:
            self._depth -= 1

    def _listed(self, given: list[Token]) -> MathAnswer:
        given = (
            [
                each._replace(text="\\setminus")
                if each.text == "-"
                and index
                and given[index + 1 : index + 2]
                and given[index + 1].text == "\\{"
                else each
                for index, each in enumerate(given)
            ]
            if any(each.text == "\\{" for each in given)
            else given
        )
        if (choice := self._choice(given)) is not None:
            return choice
        if len(given) == 1 and given[0].kind == "letters" and not _is_product(given[0].text):
            return self._word(given[0].text)
        if len(given) > 2 or (given and given[0].kind == "words"):
            words = _all_words(given)
            if words is not None:
                return words
        parts, joints = _split(given, _is_joint)
        if len(parts) > 1:
            return self._duration(given, joints) or self._joined(parts, joints)
        if any(each.text in _SIGNS for each in given) and not self._sign and given[0].text != "\\{":
            return self._both_signs(given)
        return self._related(given)

    def _word(self, word: str) -> MathAnswer:
        found = _all_words([Token("words", word, spaced=False)])
        if found is None:
            raise UnreadableError(f"{word} is no answer")
        return found

    def _joined(self, parts: list[list[Token]], joints: list[str]) -> MathAnswer:
        if len(joints) > 1 and not parts[-1]:
            raise UnreadableError("an item is missing")
        if joints[-1] == "mod":
            raise UnreadableError("mod")
        kept = [
            part
            for index, part in enumerate(parts)
            if part or _between_joints(parts, joints, index)
        ]
        items = tuple(self.answer(part) for part in kept)
        words = {"or", "and"} & set(joints)
        return _flattened(items, words.pop() if len(words) == 1 else ",")

    def _duration(self, given: list[Token], joints: list[str]) -> Quantity | None:
        """2 hours and 30 minutes; None for other lists, such as 6 cm and 8 cm."""
        if set(joints) != {"and"}:
            return None
        found = self._compound([each for each in given if each.text.lower() != "and"])
        return found if found is not None and found.unit == "s" else None

    def _both_signs(self, given: list[Token]) -> MathAnswer:
        found: list[MathAnswer] = []
        for sign in (1, -1):
            self._sign = sign
            try:
                found.append(self._related(given))
            finally:
                self._sign = 0
        return Several(tuple(found), "or")

    def _related(self, given: list[Token]) -> MathAnswer:
        if len(given) > 2 and given[0].text == "<" and given[-1].text == ">":
            return self._group(given[1:-1], "<>")
        for operation in ("\\equiv", "\\in"):
            sides, found = _split(given, partial(_is_text, operation))
            if len(sides) == 2 and found:
                return self._congruence(*sides) if operation == "\\equiv" else self._member(*sides)
        residue = _modulus(given)
        if residue is not None:
            return Congruence(None, self._scalar(residue[0]), self._scalar(residue[1]))
        parts, operations = _split(given, lambda token: token.text in _SET_OPERATIONS)
        if len(parts) > 1:
            left = self.answer(parts[0])
            for operation, part in zip(operations, parts[1:], strict=True):
                left = SetOperation(operation, left, self.answer(part))
            return left
        sides, relations = _split(given, lambda token: token.text in _RELATIONS)
        if len(sides) > 1:
            return self._relation(sides, relations)
        return self._single(given)

    def _single(  # noqa: C901, PLR0911 - a table of kinds
        self, given: list[Token]
    ) -> MathAnswer:
        if not given:
            raise UnreadableError("nothing stands here")
        brackets = _brackets_around(given)
        if brackets is not None and brackets not in ("\\lfloor\\rfloor", "\\lceil\\rceil"):
            inside = given[1:-1]
            commas = _split(inside, _is_separator)[1]
            if brackets == "{}" and given[0].text == "{":
                return self.answer(inside)
            if commas or brackets in ("{}", "<>"):
                return self._group(inside, brackets)
            if brackets in ("()", "[]") and (
                _split(inside, _is_joint)[1] or not _is_scalar(inside)
            ):
                return self.answer(inside)
        if len(given) == 2 and given[0].text == "\\mathbb":
            return _number_set(given[1].text)
        if given[0].text == "\\mathbb" and len(given) == 4:
            return _number_set(given[2].text)
        if len(given) == 1 and given[0].text == "\\emptyset":
            return NumberSet("")
        if _is_point(given):
            return Assigned(given[0].text, self._single(given[1:]))
        parts, colons = _split(given, lambda token: token.text == ":")
        if colons:
            return Ratio(tuple(self._scalar(part) for part in parts))
        return self._quantity(given)

    def _group(self, inside: list[Token], brackets: str) -> MathAnswer:
        if brackets == "{}":
            if len(inside) == 1 and inside[0].text == "\\emptyset":
                raise UnreadableError("a set whose member is the empty set")
            built, bars = _split(inside, lambda token: token.text in ("|", ":"))
            if len(built) == 2 and bars:
                return self.answer(built[1])
        if not inside:
            if brackets == "{}":
                return NumberSet("")
            raise UnreadableError("empty brackets")
        parts = _split(inside, _is_separator if brackets != "{}" else _is_joint)[0]
        items: list[MathAnswer] = []
        for part in parts:
            item = self.answer(part)
            items += item.items if isinstance(item, Several) and brackets == "{}" else [item]
        return AnswerGroup(brackets, tuple(items))

    def _congruence(self, left: list[Token], right: list[Token]) -> MathAnswer:
        residue = _modulus(right)
        if residue is None:
            raise UnreadableError("a congruence without a modulus")
        return Congruence(self._scalar(left), self._scalar(residue[0]), self._scalar(residue[1]))

    def _member(self, left: list[Token], right: list[Token]) -> MathAnswer:
        if (name := _assigned_tuple(left)) is not None:
            return Member(name, self.answer(right))
        if not left or not all(
            each.kind in ("symbol", "command", "number") or each.text == "_" for each in left
        ):
            raise UnreadableError("the element of a set")
        return Member("".join(each.text for each in left), self.answer(right))

    def _relation(self, sides: list[list[Token]], relations: list[str]) -> MathAnswer:
        if len(sides) == 2 and not sides[0] and relations[0] in ("=", "\\approx"):
            return self.answer(sides[1])
        relations = ["\\approx" if each == "\\sim" else each for each in relations]
        name = _assigned_name(sides[0])
        if set(relations) <= {"=", "\\approx"}:
            last = _assigned_name(sides[-1])
            is_word = any(each.kind in ("words", "letters") for each in sides[-1])
            if (
                name is None
                and last is not None
                and not is_word
                and len(sides) == 2
                and _is_constant(sides[0])
            ):
                sides, name = sides[::-1], last
            if name is not None:
                return Assigned(name, self._chain(sides[1:], relations[1:]))
            return self._chain(sides, relations)
        read = tuple(self._scalar(each) for each in sides)
        return Relation(read, tuple(relations))

    def _chain(self, sides: list[list[Token]], relations: list[str]) -> MathAnswer:
        """The value of a chain of equations, all of whose sides have to be equal."""
        if len(sides) == 1:
            return self.answer(sides[0])
        read = [self.answer(side) for side in sides]
        scalars = [each for each in map(_bare, read) if each is not None]
        if len(scalars) != len(read):
            raise UnreadableError("an equation of what is no number")
        names = [symbols(each) for each in scalars]
        first = scalars[0]
        if (
            any(names)
            and "\\approx" not in relations
            and not (all(names) and all(equal(first, each, decimals=0) for each in scalars[1:]))
        ):
            return Relation(tuple(scalars), tuple(relations))
        for index, relation in enumerate(relations):
            one, other = scalars[index], scalars[index + 1]
            exact = 99 if relation == "=" and not any(map(_is_decimal, (one, other))) else 0
            if not equal(one, other, decimals=exact) and not (
                relation == "\\approx" and _is_near(one, other)
            ):
                raise UnreadableError("an equation that is false")
        if "\\approx" in relations or (_is_decimal(scalars[-1]) and not _is_decimal(first)):
            exact_ones = [
                each for each, scalar in zip(read, scalars, strict=True) if not _is_decimal(scalar)
            ]
            return Approximated(exact_ones[-1] if exact_ones else read[0], read[-1])
        return read[-1]

    def _choice(self, given: list[Token]) -> Choice | None:
        """(A), A., (A) 42: a capital letter as a label."""
        if len(given) > 2 and given[0].text in ("(", "[") and given[2].text in (")", "]"):
            letter, rest = given[1], given[3:]
        elif (len(given) > 1 and given[1].text in (")", "]")) or (
            len(given) > 2 and given[1].text in (".", ":")
        ):
            letter, rest = given[0], given[2:]
        else:
            return None
        if letter.kind not in ("symbol", "words") or not _LETTER.fullmatch(letter.text.upper()):
            return None
        if rest and (
            not letter.text.isupper()
            or rest[0].text in ("^", "_", "=", "+", "-", "(", "*", "/", "\\cup", ",")
        ):
            return None
        if letter.text in ("e", "i", "f", "g", "h"):
            return None
        return Choice(letter.text.upper(), self._text(rest) if rest else None)

    def _text(self, given: list[Token]) -> MathAnswer:
        try:
            return self.answer(given)
        except UnreadableError:
            return WordsAnswer(canonical(" ".join(each.text for each in given)))

    def _quantity(self, given: list[Token]) -> MathAnswer:
        if (compound := self._compound(given)) is not None:
            return compound
        given = [part for each in given for part in _scale_apart(each)]
        scale = next((index for index, each in enumerate(given) if each.text in _SCALES), 0)
        by = 1
        if scale and (given[scale - 1].kind == "number" or given[scale - 1].text == "}"):
            by, given = _SCALES[given[scale].text], [*given[:scale], *given[scale + 1 :]]
        unit, words, is_percent, rest = _peeled(given)
        value: MathAnswer = (
            self._single(rest)
            if len(rest) < len(given) and _brackets_around(rest)
            else self._scalar(rest)
        )
        if by != 1 and isinstance(value, Number | Name | Apply):
            value = Apply("mul", (value, Number(Fraction(by))))
        if unit or words or is_percent:
            return Quantity(value, unit, words, is_percent)
        if isinstance(value, Apply) and value.function == "degrees":
            return Quantity(value.arguments[0], "degree")
        if isinstance(value, Apply) and value.function == "neg":
            inner = value.arguments[0]
            if isinstance(inner, Apply) and inner.function == "degrees":
                return Quantity(Apply("neg", (inner.arguments[0],)), "degree")
        return value

    def _compound(self, given: list[Token]) -> Quantity | None:
        """2 hours 30 minutes as 9000 s; None for what is no run of numbers and units."""
        if len(given) not in (4, 6) or not all(each.kind == "number" for each in given[::2]):
            return None
        total = Fraction(0)
        bases: set[str] = set()
        for number, unit in zip(given[::2], given[1::2], strict=True):
            known = in_base_unit(unit_of("5 " + unit.text.lstrip("\\")) or "")
            if known is None:
                return None
            total += decimal(number.text).value * known[0]
            bases.add(known[1])
        return Quantity(Number(total), bases.pop()) if len(bases) == 1 else None

    def _scalar(self, given: list[Token]) -> Expression:
        if not given:
            raise UnreadableError("nothing stands here")
        return ExpressionParser(list(given), sign=self._sign or 1).all()


def _between_joints(parts: list[list[Token]], joints: list[str], index: int) -> bool:
    """Whether an empty item is a fault; ", and" are two joints without one between them."""
    is_double = 0 < index < len(parts) - 1 and joints[index] in ("or", "and")
    is_last = index == len(parts) - 1
    return not is_double and not is_last


def _flattened(items: tuple[MathAnswer, ...], joint: str) -> Several:
    if not items:  # nothing would be the same as everything
        raise UnreadableError("a list without items")
    found: list[MathAnswer] = []
    for item in items:
        found += item.items if isinstance(item, Several) else [item]
    names = {each.name.partition("_")[0] for each in found if isinstance(each, Assigned)}
    if len(names) == 1 and isinstance(found[0], Assigned):  # x = 1, 2 and x = 1 or x = 2
        found = [each.value if isinstance(each, Assigned) else each for each in found]
        return Several(tuple(found), joint if joint != "and" else ",")
    return Several(tuple(found), joint)


def _is_text(wanted: str, token: Token) -> bool:
    return token.text == wanted


def _is_separator(token: Token) -> bool:
    return token.kind in ("mark", "command") and token.text in (",", ";", "\\\\")


def _is_joint(token: Token) -> bool:
    return _is_separator(token) or (
        token.kind in ("letters", "words") and token.text.lower() in ("or", "and")
    )


def _split(
    given: list[Token], is_mark: Callable[[Token], bool]
) -> tuple[list[list[Token]], list[str]]:
    """The parts between the marks outside of brackets, and the marks."""
    parts: list[list[Token]] = [[]]
    marks: list[str] = []
    depth = 0
    for token in given:
        if token.kind in ("mark", "command"):
            if token.text in _OPENING:
                depth += 1
            elif token.text in _CLOSING:
                depth -= 1
                if depth < 0:
                    raise UnreadableError(f"{token.text} closes nothing")
        if not depth and is_mark(token):
            parts.append([])
            marks.append(token.text.lower() if token.kind in ("letters", "words") else token.text)
        else:
            parts[-1].append(token)
    if depth:
        raise UnreadableError("a bracket is not closed")
    return parts, marks


def _unbraced(given: list[Token]) -> list[Token]:
    while len(given) > 1 and given[0].text == "{" and _brackets_around(given) is not None:
        given = given[1:-1]
    return given


def _brackets_around(given: list[Token]) -> str | None:
    """The brackets of which the first and the last token are a pair."""
    if len(given) < 2 or given[0].text not in _OPENING or given[-1].text not in _CLOSING:
        return None
    depth = 0
    for index, token in enumerate(given):
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        if not depth:
            if index < len(given) - 1:
                return None
            break
    pair = given[0].text + given[-1].text
    if pair in ("()", "[]", "(]", "[)", "{}"):
        return pair
    return {"\\{\\}": "{}", "\\langle\\rangle": "<>"}.get(pair, pair if pair[0] == "\\" else None)


def _is_point(given: list[Token]) -> bool:
    """Whether a capital letter names what is in the brackets behind it, as in A(3, 4)."""
    if given[0].kind != "symbol" or not given[0].text.isupper():
        return False
    return _brackets_around(given[1:]) == "()" and bool(_split(given[2:-1], _is_separator)[1])


def _is_scalar(inside: list[Token]) -> bool:
    return not any(
        each.text in _RELATIONS
        or each.text in _SET_OPERATIONS
        or each.text in ("\\equiv", "\\in", ":", "%")
        or each.kind == "words"
        for each in inside
    )


def _modulus(given: list[Token]) -> tuple[list[Token], list[Token]] | None:
    r"""The tokens before \pmod, (mod m) or mod, and those of the modulus."""
    for index, token in enumerate(given):
        if token.text in ("\\pmod", "\\bmod", "\\mod", "mod"):
            before, after = given[:index], given[index + 1 :]
            if before and before[-1].text == "(" and after and after[-1].text == ")":
                before, after = before[:-1], after[:-1]
            return (before, after) if before and after else None
    return None


def _assigned_name(given: list[Token]) -> str | None:  # noqa: C901, PLR0911 - a table of forms
    """The name that a side of an equation is: x, x_1, AB, f(x), |AB|, an angle, words."""
    texts = [each.text for each in given]
    if not given:
        return None
    if ":" in texts:
        names = [_assigned_name(part) for part in _split(given, lambda token: token.text == ":")[0]]
        return ":".join(map(str, names)) if all(names) else None
    kinds = [each.kind for each in given]
    if kinds == ["symbol"] or (
        kinds == ["command"] and texts[0][1:].isalpha() and texts[0] in _NAMES
    ):
        return None if texts[0] in ("e", "i") else texts[0]
    if kinds[0] == "symbol" and texts[1] == "_":
        inside = [text for text in texts[2:] if text not in ("{", "}")]
        return "".join((texts[0], "_", *inside)) if len(inside) == 1 else None
    spelt = "".join(texts)
    if _DERIVATIVE.fullmatch(spelt):
        return spelt
    if kinds[0] == "symbol" and texts[1] in ("(", "'") and texts[0] in _CALL and texts[-1] == ")":
        return (
            "".join(texts)
            if _split(given[1:-1] if texts[1] == "'" else given[2:-1], _is_operator)[1] == []
            else None
        )
    if all(
        kind == "words" or (kind == "letters" and len(text) > 3)
        for kind, text in zip(kinds, texts, strict=True)
    ):
        return canonical(" ".join(texts))
    if len(given) == 1 and _CAPITALS.fullmatch(texts[0]):
        return texts[0]
    if texts[0] in ("\\angle", "\\overline", "\\triangle", "\\vec", "\\hat") and not set(kinds) & {
        "number"
    }:
        return "".join(texts) if _split(given, _is_operator)[1] == [] else None
    if {"|", "\\frac"} & {texts[0]} and all(
        text.isupper()
        if kind in ("letters", "symbol")
        else text in ("|", "{", "}", "\\frac", "\\vec", "\\overline")
        for text, kind in zip(texts, kinds, strict=True)
    ):
        return "".join(texts)
    return _assigned_tuple(given)


def _assigned_tuple(given: list[Token]) -> str | None:
    inside = given[1:-1]
    if _brackets_around(given) == "()" and len(inside) > 2:
        parts = _split(inside, _is_separator)[0]
        if all(len(part) == 1 and part[0].kind == "symbol" for part in parts):
            return "".join(each.text for each in given)
    return None


def _is_product(letters: str) -> bool:
    """Whether letters alone are a product of variables: xy and abc, but not ABC, cat or no."""
    return (
        len(letters) <= 3
        and letters.islower()
        and set(letters) <= set("abcdkmnpqrstuvwxyz")
        and (
            "a" not in letters
            or len(letters) == 2
            or letters in ("abc", "abd", "bcd", "abx", "axy")
        )
    )


def _is_operator(token: Token) -> bool:
    return token.text in ("+", "-", "*", "/", "^", "=")


_NAMES: Final = frozenset(
    f"\\{name}"
    for name in [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "theta",
        "lambda",
        "mu",
        "rho",
        "sigma",
        "phi",
        "omega",
        "ell",
        "kappa",
        "tau",
        "xi",
        "eta",
    ]
)


def _is_constant(given: list[Token]) -> bool:
    return not any(
        each.kind in ("symbol", "letters") and each.text not in ("e", "i") for each in given
    )


def _bare(answer: MathAnswer) -> Expression | None:
    """The number of a scalar or of a quantity; None for other answers."""
    if isinstance(answer, Quantity):
        answer = answer.value
    return answer if isinstance(answer, Number | Name | Apply) else None


def _is_decimal(expression: Expression) -> bool:
    if isinstance(expression, Apply) and expression.function == "neg":
        expression = expression.arguments[0]
    return isinstance(expression, Number) and expression.digits is not None


def _is_near(one: Expression, other: Expression) -> bool:
    """Whether two numbers agree to two parts in a hundred, as what is called about equal should."""
    from zerowait.scorers.math.equality import value_of

    try:
        first, second = value_of(one), value_of(other)
        return (
            bool(abs(first - second) * 50 <= abs(first))
            if not symbols(one) | symbols(other)
            else False
        )
    except (KeyError, TypeError, UndefinedError, TooLargeError):
        return False


def _all_words(given: Sequence[Token]) -> MathAnswer | None:  # noqa: PLR0911 - a list of rules
    """Words and nothing else, at least one of them of two letters; None otherwise."""
    if not all(
        each.kind in ("letters", "words", "symbol") or each.text in ("'", "-", ".", "!")
        for each in given
    ):
        return None
    if not any(each.kind in ("letters", "words") for each in given):
        return None
    if not any(each.spaced for each in given[1:]) and not any(
        each.kind == "words" for each in given
    ):
        return None
    key = canonical(" ".join(each.text for each in given if each.kind != "mark"))
    key = _SAME_WORDS.get(key, key)
    if key in _NUMBERS:
        return Number(Fraction(_NUMBERS.index(key)))
    if not key or any(each.text.lower() in ("or", "and") for each in given) or "mod" in key.split():
        return None
    if key in _EMPTY:
        return NumberSet("")
    return NumberSet("R") if key in _ALL_REALS else WordsAnswer(key)


def _number_set(name: str) -> NumberSet:
    if name not in ("R", "Q", "Z", "N", "C"):
        raise UnreadableError(f"{name} is no set of numbers")
    return NumberSet(name)


def _peeled(given: list[Token]) -> tuple[str, str, bool, list[Token]]:
    """The unit, the words and the percent sign around a value, and the value."""
    unit, given = _money(given)
    is_percent = False
    if len(given) > 1 and (given[-1].text == "%" or given[-1].text.lower() in _PERCENT):
        return unit, "", True, given[:-1]
    if len(given) > 3 and [each.text for each in given[-3:]] == ["(", "%", ")"]:
        return unit, "", True, given[:-3]
    start = _start_of_words(given)
    if start == len(given):
        return unit, "", is_percent, given
    behind = (
        " ".join(each.text for each in given[start:])
        .replace(" ^ ", "^")
        .replace("{ ", "{")
        .replace(" }", "}")
    )
    if _UNSURE.search(behind):
        raise UnreadableError(f"{behind} leaves the answer open")
    known = unit_of(f"5 {behind}")
    degrees = (
        _without_degrees(given[:start]) if known is None and behind in ("C", "F", "K") else None
    )
    if behind in _CELSIUS:
        return f"degree {_CELSIUS[behind]}", "", False, given[:start]
    if degrees is not None:
        return f"degree {behind}", "", False, degrees
    if known is None and unit:
        known = {"dollars": "dollar", "USD": "dollar"}.get(behind)
    if not known and not _PLAIN_WORDS.fullmatch(behind):
        raise UnreadableError(f"{behind} is no unit")
    words = (
        ""
        if known or behind.lower() in _GENERIC or "unit" in behind.split()[-1]
        else canonical(behind)
    )
    return known or unit, words, is_percent, given[:start]


def _money(given: list[Token]) -> tuple[str, list[Token]]:
    """The currency whose sign stands before or behind an amount, and the amount."""
    unit = ""
    if given[0].text in _MONEY and given[0].kind != "words":
        unit, given = _MONEY[given[0].text], given[1:]
    elif len(given) > 2 and given[0].text == "-" and given[1].text in _MONEY:
        unit, given = _MONEY[given[1].text], [given[0], *given[2:]]
    if len(given) > 1 and given[-1].text in _MONEY:
        unit, given = _MONEY[given[-1].text], given[:-1]
    return unit, given


def _without_degrees(given: list[Token]) -> list[Token] | None:
    texts = [each.text for each in given]
    if texts[-2:] == ["^", "\\circ"]:
        return given[:-2]
    return given[:-4] if texts[-4:] == ["^", "{", "\\circ", "}"] else None


def _scale_apart(token: Token) -> list[Token]:
    """The words "billion years" as two tokens."""
    scale, _, unit = token.text.partition(" ")
    if token.kind != "words" or scale not in _SCALES or not unit:
        return [token]
    return [token._replace(text=scale), token._replace(text=unit, spaced=True)]


def _start_of_words(given: list[Token]) -> int:
    """Where the words at the end of a quantity begin; the length where there are none."""
    start = len(given)
    while start > 1 and _is_of_words(given, start - 1):
        start -= 1
    while start < len(given) and not _begins_words(given, start):
        start += 1
    return start


def _is_of_words(given: list[Token], index: int) -> bool:
    token = given[index]
    if token.kind in ("words", "letters"):
        return True
    if token.kind == "symbol":
        return (
            token.spaced
            or given[index - 1].text in ("/", "*")
            or given[index - 1].kind == "words"
            or (given[index - 1].text == "\\circ" or given[index - 1].text == "}")
        )
    if token.kind == "number":
        return given[index - 1].text == "^" or (
            given[index - 1].text == "{" and given[index - 2].text == "^"
        )
    return token.text in ("^", "{", "}", "/", "*", "'", "-", ".", "(", ")") and any(
        each.kind in ("words", "letters") or (each.kind == "symbol" and each.spaced)
        for each in given[1:index]
    )


def _begins_words(given: list[Token], index: int) -> bool:
    token, before = given[index], given[index - 1]
    if before.text in ("+", "-", "*", "/", "^", "_", "="):
        return False
    is_number = before.kind == "number" or before.text in (")", "}", "\\circ", "!", "\\pi", "]")
    if token.kind == "words":
        return True
    if token.kind == "letters":
        known = unit_of(f"5 {token.text}") is not None
        return is_number and (token.spaced or known) and (known or len(token.text) > 2)
    return (
        token.kind == "symbol"
        and is_number
        and token.spaced
        and unit_of(f"5 {token.text}") is not None
    ) or (
        token.kind == "symbol"
        and before.text in ("\\circ", "}")
        and token.text in ("C", "F", "K")
        and "\\circ" in [each.text for each in given[max(index - 3, 0) : index]]
    )


def is_infinite(answer: MathAnswer) -> bool:
    """Whether an answer is infinity, or minus that, and nothing else."""
    if isinstance(answer, Apply) and answer.function == "neg":
        return answer.arguments[0] == INFINITY
    return answer == INFINITY
