"""Gates: the condition under which a component is computed, such as ``answer > 0``."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from graphlib import CycleError, TopologicalSorter

from zerowait.types import Abstain, Outcome, Score, Skipped

_COMPARE: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_DEEPEST = 100
_SHOWN_CHARS = 120


class Gate:
    """A condition over the values of other components.

    Grammar: comparisons (``> >= < <= == !=``) of component names and numbers, joined by ``and``,
    ``or``, ``not`` and parentheses. A component that was skipped counts as 0.

    Raises:
        ValueError: the text is no such condition.

    >>> gate = Gate("answer > 0 and not style <= 2")
    >>> sorted(gate.names)
    ['answer', 'style']
    >>> gate.is_open({"answer": Score(1.0), "style": Score(3.0)})
    True
    """

    def __init__(self, text: str) -> None:
        self.text = text
        names: set[str] = set()
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError):
            raise ValueError(f"{_short(text)!r} is no condition such as 'answer > 0'") from None
        except (RecursionError, MemoryError):
            raise ValueError(f"{_short(text)!r} is nested too deeply") from None
        if _depth(tree) > _DEEPEST:
            raise ValueError(f"{_short(text)!r} is nested too deeply")
        self._test = _condition(tree, text, names)
        self.names = frozenset(names)
        if not names:
            raise ValueError(f"{text!r} names no component")

    def is_open(self, outcomes: Mapping[str, Outcome]) -> bool | Abstain:
        """Whether the condition holds; an abstention where a component that it names abstained."""
        values: dict[str, float] = {}
        for name in self.names:
            outcome = outcomes[name]
            if isinstance(outcome, Abstain):
                return Abstain(
                    outcome.kind, f"its gate {self.text!r} needs {name}, which abstained"
                )
            values[name] = outcome.value if isinstance(outcome, Score) else 0.0
        return self._test(values)


def gate_closed(gate: Gate) -> Skipped:
    """The outcome of a component whose gate is closed."""
    return Skipped(f"gate {gate.text!r} is closed")


def is_gate_closed(outcome: Outcome) -> bool:
    """Whether `outcome` is that of a component whose gate is closed, which counts as 0."""
    return isinstance(outcome, Skipped) and outcome.why.startswith("gate ")


def _depth(tree: ast.AST) -> int:
    """Levels of a syntax tree, counted without recursion."""
    depth, level = 0, [tree]
    while level:
        depth += 1
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return depth


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


_Test = Callable[[Mapping[str, float]], bool]


def _condition(node: ast.expr, text: str, names: set[str]) -> _Test:
    match node:
        case ast.BoolOp(op=op, values=parts):
            tests = [_condition(part, text, names) for part in parts]
            decide = all if isinstance(op, ast.And) else any
            return lambda values: decide(test(values) for test in tests)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            test = _condition(inner, text, names)
            return lambda values: not test(values)
        case ast.Compare(left=left, ops=ops, comparators=rights) if all(
            type(op) in _COMPARE for op in ops
        ):
            terms = [_term(term, text, names) for term in (left, *rights)]
            pairs = list(zip(ops, terms, terms[1:], strict=False))
            return lambda values: all(
                _COMPARE[type(op)](a(values), b(values)) for op, a, b in pairs
            )
    raise ValueError(f"{text!r} is no condition such as 'answer > 0'")


def _term(node: ast.expr, text: str, names: set[str]) -> Callable[[Mapping[str, float]], float]:
    match node:
        case ast.Name(id=name):
            names.add(name)
            return lambda values: values[name]
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return lambda _values: number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return lambda _values: -number
    raise ValueError(f"{ast.unparse(node)!r} in {text!r} is neither a component nor a number")


def evaluation_order(gates: Mapping[str, Gate | None]) -> list[str]:
    """The components in an order in which those that a gate names come before it.

    Raises:
        ValueError: the gates form a cycle; the message names it.

    >>> evaluation_order({"b": Gate("a > 0"), "a": None})
    ['a', 'b']
    """
    needed = {name: sorted(gate.names) if gate else [] for name, gate in gates.items()}
    try:
        return list(TopologicalSorter(needed).static_order())
    except CycleError as error:
        cycle = " -> ".join(reversed(error.args[1]))
        raise ValueError(f"the gates form a cycle: {cycle}") from None
