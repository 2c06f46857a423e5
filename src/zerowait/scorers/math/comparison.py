"""Whether two answers in mathematical notation are the same, in every part of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cmp_to_key
from itertools import product
from typing import Any, Final, TypeAlias, cast

from zerowait.patterns import lazy_pattern
from zerowait.scorers.math.equality import differ_by_a_constant, equal, ratio_is_constant, value_of
from zerowait.scorers.math.expression import (
    Apply,
    Evaluation,
    Expression,
    Name,
    Number,
    TooLargeError,
    UndefinedError,
    symbols,
)
from zerowait.scorers.math.notation import (
    AnswerGroup,
    Approximated,
    Assigned,
    Choice,
    Congruence,
    MathAnswer,
    Matrix,
    Member,
    NumberSet,
    Numeral,
    Quantity,
    Ratio,
    Relation,
    SetOperation,
    Several,
    Time,
    WordsAnswer,
    is_infinite,
)
from zerowait.scorers.math.unit import in_base_unit

_FLIPPED: Final = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le", "=": "=", "\\ne": "\\ne"}
_INTERVALS: Final = ("()", "[]", "(]", "[)")
_OF_INTEGRATION: Final = frozenset({"C", "c", "K", "C_1"})
_MOST_COMPARED: Final = 60
_FUNCTION: Final = lazy_pattern(r"([A-Za-z])\(([a-z])\)")
_LENGTH: Final = lazy_pattern(r"\A(?:\|([A-Z]{2})\||\\overline\{([A-Z]{2})\})\Z")


def same(gold: MathAnswer, said: MathAnswer, decimals: int) -> bool:  # noqa: PLR0911 - a table of kinds
    """Whether `said` is the answer `gold`, by all of its parts; decimals as in `equality.equal`."""
    if type(gold) is type(said) and gold == said:
        return True
    if isinstance(gold, Choice) or isinstance(said, Choice):
        return _same_choice(gold, said, decimals)
    if _parameter(gold) or _parameter(said):
        return _same_family(gold, said, decimals)
    if isinstance(gold, Approximated) or isinstance(said, Approximated):
        return any(same(*each, decimals) for each in product(_written(gold), _written(said)))
    if _is_set(gold) and _is_set(said) and not (_is_tuple(gold) and _is_tuple(said)):
        return _same_sets(gold, said, decimals)
    if isinstance(gold, Assigned) or isinstance(said, Assigned):
        return _same_assigned(gold, said, decimals)
    if isinstance(gold, Quantity) or isinstance(said, Quantity):
        return _same_quantity(gold, said, decimals)
    if _is_scalar(gold) and _is_scalar(said):
        return _equal(gold, said, decimals)
    if isinstance(gold, AnswerGroup | Several) or isinstance(said, AnswerGroup | Several):
        return _same_items(gold, said, decimals)
    return _same_kind(gold, said, decimals)


def has_value(answer: MathAnswer) -> bool:
    r"""Whether every expression in an answer has a value, as 1/0 has none; \infty alone has one.

    Raises:
        TooLargeError: computing one would take too long.
    """
    if _is_scalar(answer):
        return is_infinite(answer) or _has_value(answer)
    return all(has_value(each) for each in _parts(answer))


def _written(answer: MathAnswer) -> tuple[MathAnswer, ...]:
    """The ways in which a value was written: exactly, and as a decimal fraction behind that."""
    return tuple(answer) if isinstance(answer, Approximated) else (answer,)


def _parameter(answer: MathAnswer) -> Member | Relation | None:
    r"""The k \in Z behind an answer with a value for each k, or the x \ne 3 behind a formula."""
    if not isinstance(answer, Several) or len(answer.items) < 2:
        return None
    last: Any = answer.items[-1]
    is_set = isinstance(last, Member) and last.of in (NumberSet("Z"), NumberSet("N"))
    is_exception = (
        isinstance(last, Relation)
        and last.relations == ("\\ne",)
        and isinstance(answer.items[0], Apply)
        and bool(symbols(answer.items[0]))
    )
    return last if is_set or is_exception else None


def _same_family(gold: MathAnswer, said: MathAnswer, decimals: int) -> bool:
    r"""Whether answers for each k are the same, whatever its name; k \in Z may be left out."""
    one, other = _parameter(gold), _parameter(said)
    if isinstance(one, Relation) or isinstance(other, Relation):
        if isinstance(one, Member) or isinstance(other, Member):
            return False
    elif one is not None and other is not None:
        if one.of != other.of:
            return False
        said = said if one.name == other.name else _renamed(said, other.name, one.name)
    elif (one or other).of != NumberSet("Z"):  # type: ignore[union-attr]
        return False
    return same(_without_parameter(gold), _without_parameter(said), decimals)


def _without_parameter(answer: MathAnswer) -> MathAnswer:
    if _parameter(answer) is None:
        return answer
    assert isinstance(answer, Several)  # noqa: S101 - for mypy
    return answer.items[0] if len(answer.items) == 2 else Several(answer.items[:-1], answer.joint)


def _renamed(answer: Any, name: str, to: str) -> Any:
    """`answer` with another name for one of its symbols, which no other one in it has."""
    if isinstance(answer, Name):
        return Name({name: to, to: f"another {to}"}.get(answer.name, answer.name))
    if not isinstance(answer, tuple):
        return answer
    parts = [_renamed(each, name, to) for each in answer]
    return tuple(parts) if type(answer) is tuple else type(answer)(*parts)


def _parts(answer: MathAnswer) -> Iterator[Any]:
    for part in answer:
        if isinstance(part, tuple) and type(part) is not tuple:
            yield part
        elif isinstance(part, tuple):
            for each in part:
                if isinstance(each, tuple) and type(each) is tuple:
                    yield from each
                elif isinstance(each, tuple):
                    yield each


def _has_value(expression: Any) -> bool:
    names = sorted(symbols(expression))
    points = {name: Fraction(7 * index + 19, 23) for index, name in enumerate(names)}
    try:
        value_of(expression, points)
    except UndefinedError:
        return False
    return True


def _is_scalar(answer: MathAnswer) -> bool:
    return isinstance(answer, Number | Name | Apply)


def _equal(gold: Any, said: Any, decimals: int) -> bool:
    if is_infinite(gold) or is_infinite(said):
        return is_infinite(gold) and is_infinite(said) and type(gold) is type(said)
    try:
        if equal(gold, said, decimals=decimals):
            return True
        one, other = _without_constant(gold), _without_constant(said)
        return one is not None and other is not None and differ_by_a_constant(one, other)
    except (UndefinedError, TooLargeError):
        return False


def _without_constant(expression: Expression) -> Expression | None:
    """What an antiderivative is but for its constant; None without one."""
    if not isinstance(expression, Apply) or expression.function != "add":
        return None
    kept = tuple(
        each
        for each in expression.arguments
        if not (isinstance(each, Name) and each.name in _OF_INTEGRATION)
    )
    if len(kept) != len(expression.arguments) - 1 or any(
        symbols(each) & _OF_INTEGRATION for each in kept
    ):
        return None
    return kept[0] if len(kept) == 1 else Apply("add", kept)


def _same_choice(gold: MathAnswer, said: MathAnswer, decimals: int) -> bool:
    if isinstance(gold, Choice) and isinstance(said, Choice):
        if gold.letter != said.letter:
            return False
        return gold.text is None or said.text is None or same(gold.text, said.text, decimals)
    choice, other = (gold, said) if isinstance(gold, Choice) else (said, gold)
    assert isinstance(choice, Choice)  # noqa: S101 - for mypy
    letter = (
        other.name
        if isinstance(other, Name)
        else other.key
        if isinstance(other, WordsAnswer)
        else ""
    )
    if letter.upper() == choice.letter:
        return True
    if choice.text is None:
        return False
    pair = (choice.text, said) if choice is gold else (gold, choice.text)
    return same(*pair, decimals)


def _same_assigned(gold: MathAnswer, said: MathAnswer, decimals: int) -> bool:
    gold, said = _spread(gold), _spread(said)
    if isinstance(gold, Several) or isinstance(said, Several):
        return _same_items(gold, said, decimals)
    if isinstance(gold, Assigned) and isinstance(said, Assigned):
        said = _with_argument_of(gold, said)
        if _plain_name(gold.name) == _plain_name(said.name):
            return same(gold.value, said.value, decimals)
        return _same_equations(gold, said)
    if isinstance(gold, Relation) or isinstance(said, Relation):
        return _same_equations(gold, said)
    if isinstance(gold, Assigned):
        return same(gold.value, said, decimals)
    assert isinstance(said, Assigned)  # noqa: S101 - for mypy
    return same(gold, said.value, decimals)


def _with_argument_of(gold: Assigned, said: Assigned) -> Assigned:
    """f(t) = 2t as f(x) = 2x, where that is how the gold one is written."""
    one, other = _FUNCTION.fullmatch(gold.name), _FUNCTION.fullmatch(said.name)
    if one is None or other is None or one[1] != other[1] or one[2] == other[2]:
        return said
    return Assigned(gold.name, _renamed(said.value, other[2], one[2]))


def _plain_name(name: str) -> str:
    name = _LENGTH.sub(r"\1\2", name)
    return "y" if name in ("f(x)", "g(x)", "y(x)", "h(x)") else name


def _spread(answer: MathAnswer) -> MathAnswer:
    """(x, y) = (1, 2) as x = 1, y = 2."""
    if (
        isinstance(answer, Assigned)
        and answer.name.startswith("(")
        and isinstance(answer.value, AnswerGroup)
    ):
        names = answer.name[1:-1].split(",")
        if len(names) == len(answer.value.items):
            items = (Assigned(*each) for each in zip(names, answer.value.items, strict=True))
            return Several(tuple(items), ",")
    return answer


def _same_equations(gold: MathAnswer, said: MathAnswer) -> bool:
    """Whether one equation is a multiple of the other."""
    one, other = _difference(gold), _difference(said)
    if one is None or other is None:
        return False
    try:
        return ratio_is_constant(one, other) != 0
    except (TooLargeError, UndefinedError):
        return False


def _difference(answer: MathAnswer) -> Expression | None:
    """Left side less right side of an equation."""
    if isinstance(answer, Assigned) and isinstance(answer.value, Number | Name | Apply):
        return Apply("add", (Name(_plain_name(answer.name)), Apply("neg", (answer.value,))))
    if isinstance(answer, Relation) and answer.relations == ("=",):
        return Apply("add", (answer.sides[0], Apply("neg", (answer.sides[1],))))
    return None


def _same_quantity(  # noqa: PLR0911 - a list of rules
    gold: MathAnswer, said: MathAnswer, decimals: int
) -> bool:
    one = gold if isinstance(gold, Quantity) else Quantity(gold)
    other = said if isinstance(said, Quantity) else Quantity(said)
    if one.is_percent != other.is_percent:
        return _same_share(one, other, decimals)
    if one.words and other.words and not _agree(one.words, other.words):
        return False
    if (one.words and other.unit) or (one.unit and other.words):
        named = {each.unit or each.words.removesuffix("s") for each in (one, other)}
        return len(named) == 1 and same(one.value, other.value, decimals)
    if {one.unit, other.unit} == {"pound", "lb"}:  # the currency has the name of the weight
        return same(one.value, other.value, decimals)
    if {one.unit, other.unit} == {"degree", "radian"}:
        return _same_angle(one, other, decimals)
    if one.unit and other.unit and one.unit != other.unit:
        return _same_converted(one, other, decimals)
    if same(one.value, other.value, decimals):
        return True
    return _same_angle(one, other, decimals) or _same_product(one, other, decimals)


def _agree(gold: str, said: str) -> bool:
    """Whether words behind a number name the same: apples, apple, red apples."""
    one, other = ({word.removesuffix("s") for word in words.split()} for words in (gold, said))
    return one <= other or other <= one


def _same_share(one: Quantity, other: Quantity, decimals: int) -> bool:
    """A percentage is the number before the sign, or a hundredth of it."""
    if not _is_scalar(one.value) or not _is_scalar(other.value) or one.unit or other.unit:
        return False
    if _equal(one.value, other.value, decimals):
        return True
    shares = [_hundredth(each.value) if each.is_percent else each.value for each in (one, other)]
    return _equal(shares[0], shares[1], decimals)


def _hundredth(value: Any) -> Expression:
    if isinstance(value, Number):
        return Number(value.value / 100, value.digits, value.unit / 100)
    return Apply("div", (value, Number(Fraction(100))))


def _same_converted(one: Quantity, other: Quantity, decimals: int) -> bool:
    first, second = in_base_unit(one.unit), in_base_unit(other.unit)
    if first is None or second is None or first[1] != second[1]:
        return False
    values = [
        Apply("mul", (each.value, Number(factor)))
        for each, factor in ((one, first[0]), (other, second[0]))
        if isinstance(each.value, Number | Name | Apply)
    ]
    return len(values) == 2 and _equal(values[0], values[1], decimals)


def _same_angle(one: Quantity, other: Quantity, decimals: int) -> bool:
    """30 degrees and pi/6."""
    if (one.unit == "degree") == (other.unit == "degree"):
        return False
    values = [
        Apply("degrees", (each.value,)) if each.unit == "degree" else each.value  # type: ignore[arg-type]
        for each in (one, other)
    ]
    return all(map(_is_scalar, (one.value, other.value))) and _equal(values[0], values[1], decimals)


def _same_product(one: Quantity, other: Quantity, decimals: int) -> bool:
    """5 m read as a length, and 5m read as a product."""
    values: list[Any] = [
        Apply("mul", (cast("Any", each.value), Name(each.unit)))
        if each.unit and len(each.unit) == 1
        else each.value
        for each in (one, other)
    ]
    is_one = bool(one.unit) != bool(other.unit)
    return is_one and all(map(_is_scalar, values)) and _equal(values[0], values[1], decimals)


def _same_kind(  # noqa: C901, PLR0911, PLR0912 - a table of kinds
    gold: Any, said: Any, decimals: int
) -> bool:
    match gold, said:
        case Matrix(), Matrix():
            shapes = [(len(each.rows), len(each.rows[0])) for each in (gold, said)]
            pairs = zip(sum(gold.rows, ()), sum(said.rows, ()), strict=False)
            return shapes[0] == shapes[1] and all(
                same(one, other, decimals) for one, other in pairs
            )
        case Matrix(), _ if len(gold.rows) == len(gold.rows[0]) == 1:
            return same(gold.rows[0][0], said, decimals)
        case Relation(), Relation():
            return _same_relation(gold, said)
        case Congruence(), Congruence():
            return _same_congruence(gold, said)
        case Ratio(), Ratio():
            return _same_ratio(gold, said, decimals)
        case Time(), Time():
            return _same_time(gold, said)
        case Numeral(digits, "10"), _:
            return digits.isdigit() and same(Number(Fraction(int(digits))), said, decimals)
        case _, Numeral(digits, "10"):
            return digits.isdigit() and same(gold, Number(Fraction(int(digits))), decimals)
        case Member(), Member():
            return gold.name == said.name and same(gold.of, said.of, decimals)
        case Member(), _:
            return same(gold.of, said, decimals)
        case _, Member():
            return same(gold, said.of, decimals)
        case SetOperation(), SetOperation():
            return _same_operation(gold, said, decimals)
        case (WordsAnswer(key), Name(name)) | (Name(name), WordsAnswer(key)):
            return key == name.lower()
        case _:
            return False


def _same_operation(gold: SetOperation, said: SetOperation, decimals: int) -> bool:
    """Sets with letters in them: their parts in any order."""
    if gold.operation != said.operation:
        return False
    if gold.operation == "\\setminus":
        return same(gold.left, said.left, decimals) and same(gold.right, said.right, decimals)
    return _match(_operands(gold), _operands(said), decimals)


def _operands(answer: SetOperation) -> list[MathAnswer]:
    found: list[MathAnswer] = []
    for each in (answer.left, answer.right):
        is_same = isinstance(each, SetOperation) and each.operation == answer.operation
        found += _operands(each) if is_same else [each]  # type: ignore[arg-type]
    return found


def _same_relation(gold: Relation, said: Relation) -> bool:
    if len(gold.relations) != len(said.relations):
        return False
    if len(gold.relations) == 1:
        one, other = (
            Apply("add", (each.sides[0], Apply("neg", (each.sides[1],)))) for each in (gold, said)
        )
        try:
            sign = ratio_is_constant(one, other)
        except (TooLargeError, UndefinedError):
            return False
        wanted = gold.relations[0] if sign > 0 else _FLIPPED[gold.relations[0]]
        return sign != 0 and said.relations[0] == wanted
    turned = Relation(said.sides[::-1], tuple(_FLIPPED[each] for each in said.relations[::-1]))
    return any(
        gold.relations == each.relations
        and all(_equal(one, other, 99) for one, other in zip(gold.sides, each.sides, strict=True))
        for each in (said, turned)
    )


def _same_congruence(gold: Congruence, said: Congruence) -> bool:
    if gold.left is not None and said.left is not None and not _equal(gold.left, said.left, 99):
        return False
    if not _equal(gold.modulus, said.modulus, 99):
        return False
    if _equal(gold.residue, said.residue, 99):
        return True
    try:
        values = [value_of(each) for each in (gold.residue, said.residue, gold.modulus)]
    except (ArithmeticError, KeyError):
        return False
    return (
        all(isinstance(each, Fraction) for each in values)
        and (values[0] - values[1]) % values[2] == 0
    )


def _same_ratio(gold: Ratio, said: Ratio, decimals: int) -> bool:
    if len(gold.parts) != len(said.parts):
        return False
    first = [Apply("mul", (gold.parts[0], each)) for each in said.parts[1:]]
    other = [Apply("mul", (said.parts[0], each)) for each in gold.parts[1:]]
    return all(_equal(one, two, decimals) for one, two in zip(first, other, strict=True))


def _same_time(gold: Time, said: Time) -> bool:
    if gold[1:3] != said[1:3]:
        return False
    if gold.half and said.half:
        return gold.half == said.half and gold.hour == said.hour
    return gold.hour == said.hour or _hour(gold) == _hour(said)


def _hour(time: Time) -> int:
    return time.hour % 12 + 12 * (time.half == "p") if time.half else time.hour


# Lists, tuples and sets of answers


def _same_items(  # noqa: C901, PLR0911, PLR0912 - a table of kinds
    gold: Any, said: Any, decimals: int
) -> bool:
    match gold, said:
        case AnswerGroup("{}", (AnswerGroup() as only,)), Several() if _are_assigned(said):
            return same(only, said, decimals)
        case AnswerGroup("{}"), AnswerGroup("{}") | Several():
            return _match(_distinct(gold.items), _distinct(said.items), decimals)
        case Several(), AnswerGroup("{}"):
            return _match(_distinct(gold.items), _distinct(said.items), decimals)
        case Several(), Several():
            if {gold.joint, said.joint} == {"and", "or"} and _are_names(gold.items):
                return False
            return _match(list(gold.items), list(said.items), decimals)
        case AnswerGroup("{}", (AnswerGroup() as only,)), AnswerGroup():
            return same(only, said, decimals)
        case AnswerGroup(), AnswerGroup("{}", (AnswerGroup() as only,)):
            return same(gold, only, decimals)
        case AnswerGroup(), AnswerGroup():
            return _same_brackets(gold, said) and _in_order(gold.items, said.items, decimals)
        case (AnswerGroup(), Several()) | (Several(), AnswerGroup()) if (
            isinstance(gold, AnswerGroup) or len(gold.items) > 2
        ):
            return not _is_interval(gold) and _in_order(_values(gold), _values(said), decimals)
        case (Several(), AnswerGroup()):
            values = _values(gold)
            return values is not gold.items and _in_order(values, said.items, decimals)
        case (Matrix(), AnswerGroup("()" | "[]" | "<>")):
            return _in_order(_entries(gold), said.items, decimals)
        case (AnswerGroup("()" | "[]" | "<>"), Matrix()):
            return _in_order(gold.items, _entries(said), decimals)
        case (Several(), Number() | Name() | Apply()) | (Number() | Name() | Apply(), Several()):
            items = gold.items if isinstance(gold, Several) else said.items
            other = said if isinstance(gold, Several) else gold
            return not _are_assigned(items) and all(same(other, each, decimals) for each in items)
        case AnswerGroup("{}", (only,)), _:
            return same(only, said, decimals)
        case _, AnswerGroup("{}", (only,)):
            return same(gold, only, decimals)
        case Member(), _:
            return same(gold.of, said, decimals)
        case _, Member():
            return same(gold, said.of, decimals)
        case _:
            return False


def _are_assigned(items: Any) -> bool:
    """Whether items are x = 1, y = 2."""
    items = items.items if isinstance(items, Several) else items
    names = {each.name if isinstance(each, Assigned) else None for each in items}
    return len(names) > 1 and None not in names


def _are_names(items: Sequence[MathAnswer]) -> bool:
    return all(isinstance(each, Name) and symbols(each) for each in items)


def _is_interval(answer: MathAnswer) -> bool:
    r"""Whether brackets say that the two numbers in them are ends: [0, 2] is not 0, 2."""
    return (
        isinstance(answer, AnswerGroup)
        and answer.brackets in ("[]", "(]", "[)")
        and len(answer.items) == 2
    )


def _same_brackets(gold: AnswerGroup, said: AnswerGroup) -> bool:
    if gold.brackets == said.brackets:
        return True
    if "{}" in (gold.brackets, said.brackets) or {gold.brackets, said.brackets} & {"(]", "[)"}:
        return False
    return "<>" in (gold.brackets, said.brackets) or len(gold.items) > 2


def _entries(matrix: Any) -> tuple[MathAnswer, ...]:
    """Those of a vector; none of a matrix that is not one."""
    rows: tuple[tuple[MathAnswer, ...], ...] = matrix.rows
    return rows[0] if len(rows) == 1 else sum(rows, ()) if len(rows[0]) == 1 else ()


def _values(answer: Any) -> tuple[MathAnswer, ...]:
    """The values of x = 1, y = 2 where the names are in order; else the items as they are."""
    items: tuple[MathAnswer, ...] = answer.items
    names = [each.name for each in items if isinstance(each, Assigned)]
    if len(names) == len(items) and names == sorted(set(names)):
        return tuple(each.value for each in items if isinstance(each, Assigned))
    return items


def _in_order(gold: Sequence[MathAnswer], said: Sequence[MathAnswer], decimals: int) -> bool:
    return len(gold) == len(said) and all(
        same(one, other, decimals) for one, other in zip(gold, said, strict=True)
    )


def _distinct(items: Sequence[MathAnswer]) -> list[MathAnswer]:
    found: list[MathAnswer] = []
    for item in items[:_MOST_COMPARED]:
        if not any(same(each, item, 99) for each in found):
            found.append(item)
    return found + list(items[_MOST_COMPARED:])


def _match(gold: list[MathAnswer], said: list[MathAnswer], decimals: int) -> bool:
    """Whether each item of one is one of the other, in any order."""
    if len(gold) != len(said):
        return False
    if len(gold) > _MOST_COMPARED:
        return _in_order(gold, said, decimals)
    left = list(said)
    for item in gold:
        index = next((index for index, each in enumerate(left) if same(item, each, decimals)), None)
        if index is None:
            return False
        del left[index]
    return True


# Sets of real numbers: intervals, inequalities, unions


_Position: TypeAlias = int


def _is_tuple(answer: MathAnswer) -> bool:
    return isinstance(answer, AnswerGroup) and answer.brackets != "{}"


def _is_set(answer: MathAnswer) -> bool:  # noqa: PLR0911 - a table of kinds
    """Whether an answer is a set of real numbers whose ends are numbers."""
    match answer:
        case AnswerGroup(brackets, (lower, upper)) if brackets in _INTERVALS:
            return _is_end(lower) and _is_end(upper)
        case AnswerGroup("{}", items):
            return all(_is_end(each) and not is_infinite(each) for each in items)
        case NumberSet(name):
            return name in ("", "R")
        case SetOperation(_, left, right):
            return _is_set(left) and _is_set(right)
        case Member(_, of):
            return _is_set(of)
        case Relation():
            return _variable(answer) is not None
        case Several(items, _):
            return _is_set_of_several(items)
        case _:
            return False


def _is_set_of_several(items: tuple[MathAnswer, ...]) -> bool:
    kinds = [each for each in items if isinstance(each, Relation | Member)]
    if kinds:
        names = {_name_of(each) for each in items}
        return (
            len(names) == 1
            and None not in names
            and all(
                _is_set(each) or (isinstance(each, Assigned) and _is_end(each.value))
                for each in items
            )
        )
    return all(_is_tuple(each) and _is_set(each) for each in items) and any(
        isinstance(each, AnswerGroup)
        and (each.brackets != "()" or any(map(is_infinite, each.items)))
        for each in items
    )


def _name_of(answer: MathAnswer) -> str | None:
    if isinstance(answer, Member | Assigned):
        return answer.name
    return _variable(answer) if isinstance(answer, Relation) else None


def _is_end(answer: MathAnswer) -> bool:
    if not isinstance(answer, Number | Name | Apply):
        return False
    if is_infinite(answer):
        return True
    if symbols(answer):
        return False
    try:
        value = value_of(answer)
    except (UndefinedError, TooLargeError):
        return False
    return isinstance(value, Fraction) or not Evaluation({}).mp.im(value)


def _variable(relation: Relation) -> str | None:
    """The variable of 1 < x < 2 and x > 3; None where it is no such inequality."""
    names = [each.name for each in relation.sides if isinstance(each, Name) and symbols(each)]
    others = [each for each in relation.sides if not (isinstance(each, Name) and symbols(each))]
    is_single = len(names) == 1 and all(map(_is_end, others)) and "=" not in relation.relations
    is_inside = len(relation.sides) == 2 or (
        len(relation.sides) == 3 and relation.sides[1] == Name(names[0]) if names else False
    )
    return names[0] if is_single and is_inside else None


def _same_sets(gold: MathAnswer, said: MathAnswer, decimals: int) -> bool:
    names = [name for name in map(_set_name, (gold, said)) if name]
    if len(set(names)) > 1:
        return False
    line = _Line([*_ends(gold), *_ends(said)], decimals)
    return all(map(line.is_in_order, [*_intervals(gold), *_intervals(said)])) and all(
        line.has(gold, each) == line.has(said, each) for each in line.positions()
    )


def _set_name(answer: MathAnswer) -> str | None:
    if isinstance(answer, Several):
        return next((name for name in map(_name_of, answer.items) if name), None)
    return _name_of(answer)


def _ends(answer: MathAnswer) -> Iterator[Expression]:
    match answer:
        case Number() | Name() | Apply():
            if not is_infinite(answer) and not symbols(answer):
                yield answer
        case AnswerGroup(_, items) | Several(items, _):
            for item in items:
                yield from _ends(item)
        case SetOperation(_, left, right):
            yield from _ends(left)
            yield from _ends(right)
        case Member(_, of) | Assigned(_, of):
            yield from _ends(of)
        case Relation(sides, _):
            for side in sides:
                yield from _ends(side)


def _intervals(answer: MathAnswer) -> Iterator[AnswerGroup]:
    match answer:
        case AnswerGroup(brackets, _) if brackets in _INTERVALS:
            yield answer
        case SetOperation(_, left, right):
            yield from _intervals(left)
            yield from _intervals(right)
        case Several(items, _):
            for item in items:
                yield from _intervals(item)
        case Member(_, of):
            yield from _intervals(of)


class _Line:
    """The real line, cut at some ends: odd positions are those, even ones the gaps between them."""

    def __init__(self, ends: list[Expression], decimals: int) -> None:
        self._known: list[Expression] = []
        self._decimals = decimals
        for end in ends:
            if not any(_equal(each, end, decimals) for each in self._known):
                self._known.append(end)
        use = Evaluation({})
        values = {id(each): use.real(value_of(each)).real for each in self._known}
        order: Callable[[Any], Any] = cmp_to_key(
            lambda one, other: -1 if values[id(one)] < values[id(other)] else 1
        )
        self._known.sort(key=order)

    def is_in_order(self, interval: AnswerGroup) -> bool:
        """Whether the lower end stands before the upper one, as in no (2, 1)."""
        lower, upper = map(self.at, interval.items)
        return lower < upper or (lower == upper and interval.brackets == "[]")

    def positions(self) -> range:
        return range(2 * len(self._known) + 1)

    def at(self, end: MathAnswer) -> _Position:
        if is_infinite(end):
            return -1 if isinstance(end, Apply) else 2 * len(self._known) + 1
        return next(
            2 * index + 1
            for index, each in enumerate(self._known)
            if _equal(each, end, self._decimals)
        )

    def has(self, answer: MathAnswer, position: _Position) -> bool:  # noqa: PLR0911 - table of kinds
        """Whether a set contains the point or gap at a position."""
        match answer:
            case AnswerGroup("{}", items):
                return any(self.at(each) == position for each in items)
            case AnswerGroup(brackets, (lower, upper)):
                low, high = self.at(lower), self.at(upper)
                return (
                    low < position < high
                    or (position == low and brackets[0] == "[")
                    or (position == high and brackets[1] == "]")
                )
            case NumberSet(name):
                return name == "R"
            case SetOperation(operation, left, right):
                one, other = self.has(left, position), self.has(right, position)
                return {"\\cup": one or other, "\\cap": one and other}.get(
                    operation, one and not other
                )
            case Member(_, of):
                return self.has(of, position)
            case Assigned(_, value):
                return self.at(value) == position
            case Relation(sides, relations):
                return all(
                    map(self._holds, [position] * len(relations), sides, relations, sides[1:])
                )
            case Several(items, joint):
                return self._has_several(items, joint, position)
            case _:
                return False

    def _holds(
        self, position: _Position, left: Expression, relation: str, right: Expression
    ) -> bool:
        one = position if symbols(left) else self.at(left)
        other = position if symbols(right) else self.at(right)
        return {
            "<": one < other,
            ">": one > other,
            "\\le": one <= other,
            "\\ge": one >= other,
            "\\ne": one != other,
        }.get(relation, False)

    def _has_several(self, items: tuple[MathAnswer, ...], joint: str, position: _Position) -> bool:
        """Any of the inequalities with "or" between them; of others all, if they have a point."""
        if all(map(_is_tuple, items)) or joint == "or":
            return any(self.has(each, position) for each in items)
        if any(all(self.has(each, other) for each in items) for other in self.positions()):
            return all(self.has(each, position) for each in items)
        return joint == "," and any(self.has(each, position) for each in items)
