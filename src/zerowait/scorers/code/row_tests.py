"""A row's tests, in the forms in which public data sets have them.

===================  =============================================================================
form                 data sets
===================  =============================================================================
inputs and outputs   verl's ``prime_code``, Eurus, APPS, TACO, codecontests; with ``fn_name`` calls
list of pairs        LiveCodeBench, codeforces, DeepCoder: ``{input, output}``, and a type
list of asserts      MBPP, AceCode, verl's ``assert_case``
``test``, a text     HumanEval (``check(candidate)``), and functions called ``test_...``
===================  =============================================================================

Each may be JSON, once or twice encoded, or what numpy, pandas and pyarrow make of it.
"""

from __future__ import annotations

import ast
import base64
import binascii
import builtins
import io
import json
import pickle
import re
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from zerowait.scorers.code.prelude import MODULES
from zerowait.types import Abstain, FailureKind, Sample

_MOST_BYTES: Final = 512 << 20
_LISTS: Final = ("test_cases", "official_tests", "public_test_cases", "examples", "unit_tests")
_COLUMNS: Final = (
    "test_list", "test", "tests", "input_output", "public_test_cases", "public_tests",
    "official_tests", "test_cases", "inputs", "assert_case",
)  # fmt: skip
_CALL_TYPES: Final = ("functional", "function_call", "call")


_OUTPUT: Final = re.compile(
    r"\b(?:redirect_std(?:out|err)|sys\.std(?:in|out|err)|unittest\.mock|mock\.patch|monkeypatch)\b"
)


class StdinTests(NamedTuple):
    """Programs that read and write: pairs of input and expected output."""

    pairs: list[tuple[str, str]]


class CallTests(NamedTuple):
    """A function's calls.

    Args:
        name: of the function, or of a method of ``Solution``.
        calls: the arguments of each.
        expected: the results that are right, for each call.
    """

    name: str
    calls: list[list[Any]]
    expected: list[list[Any]]


class AssertTests(NamedTuple):
    """Code that raises unless the program is right.

    Args:
        asserts: one piece of code for each test.
        setup: code that is executed before them.
        entry_point: the function that the tests call ``candidate``.
        shadows: the functions that are tested and have the name of a builtin or of a module. Any
            other builtin or module is the tests' own, whatever the program defines.
    """

    asserts: list[str]
    setup: str = ""
    entry_point: str = ""
    shadows: tuple[str, ...] = ()


RowTests: TypeAlias = StdinTests | CallTests | AssertTests


def read_tests(sample: Sample, column: str | None = None) -> RowTests | Abstain:
    r"""The tests of a row.

    Args:
        sample: the tests are its ground truth; without one, columns of ``extra`` that data sets
            use, such as ``input_output``, ``test_list`` or ``public_test_cases``.
        column: the column of ``extra`` that holds them instead.

    >>> read_tests(Sample("", "", {"inputs": ["1\n"], "outputs": ["2\n"]}))
    StdinTests(pairs=[('1\n', '2\n')])
    >>> read_tests(Sample("", "", '["assert f(1) == 2"]'))
    AssertTests(asserts=['assert f(1) == 2'], setup='', entry_point='', shadows=())
    """
    try:
        found = _tests_in(sample, column)
    except (ValueError, TypeError, KeyError, RecursionError, SyntaxError, AttributeError) as error:
        return _unreadable(f"{type(error).__name__}: {error}"[:200])
    if found is None:
        where = "the ground truth" if column is None else f"extra.{column}"
        return _unreadable(f"{where} has none of the known forms")
    if isinstance(found, StdinTests) and (why := _not_by_output(sample.extra)):
        return Abstain(FailureKind.BAD_INPUT, why)
    if isinstance(found, AssertTests):
        found = found._replace(shadows=_shadows(found))
    return found if number_of(found) else _unreadable("there is none")


def _not_by_output(extra: Mapping[str, Any]) -> str:
    """Why comparing outputs would fail right programs; empty where it does not.

    The columns are those of open-r1/codeforces, empty in rows that need none of this.
    """
    if extra.get("generated_checker"):
        return "the row has several right outputs and a generated_checker, which is not run"
    if extra.get("interaction_format"):
        return "the row's programs talk with an interactor (interaction_format), which is not run"
    if extra.get("input_mode") == "file":
        return "the row's programs read and write files (input_mode), which is not offered"
    return ""


def _shadows(tests: AssertTests) -> tuple[str, ...]:
    """The builtins' and modules' names that tested functions have.

    A builtin is one where the tests use no other name; a module where it is called.

    >>> _shadows(AssertTests(["assert sum(10, 15) == 6"]))
    ('sum',)
    >>> _shadows(AssertTests(["assert abs(f(2) - 4) < 1e-6"]))
    ()
    >>> _shadows(AssertTests(["assert copy([1]) == [1]"]))
    ('copy',)
    """
    if tests.entry_point:
        return ()
    nodes = [node for code in tests.asserts for node in ast.walk(_parsed(code))]
    calls = [
        node.func.id
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    own = _named([*nodes, *ast.walk(_parsed(tests.setup))])
    modules = tuple(sorted({*calls} & {*MODULES.split()} - own))
    if not calls or not all(hasattr(builtins, name) for name in {*calls, *(used - own)}):
        return modules
    return (calls[0],)


def _named(nodes: list[ast.AST]) -> set[str]:
    """The names that code gives to something itself."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
    return found


def _parsed(code: str) -> ast.AST:
    try:
        return ast.parse(code)
    except SyntaxError:  # the sandbox says so
        return ast.Module([], [])


def _unreadable(why: str) -> Abstain:
    return Abstain(FailureKind.BAD_INPUT, f"the row's tests cannot be read: {why}")


def _tests_in(sample: Sample, column: str | None) -> RowTests | None:
    extra = {str(key): value for key, value in sample.extra.items()}
    if column is not None:
        given = _plain(extra.get(column))
        return _read(given, extra) if given is not None else None
    given = _plain(sample.ground_truth)
    has_columns = any(name in extra for name in _COLUMNS)
    try:
        found = None if given is None else _read(given, extra)
    except SyntaxError:  # such as HumanEval's solution, which is a function's body
        if not has_columns:
            raise
        found = None
    return _read(extra, {}) if found is None and has_columns else found


def _plain(value: Any) -> Any:
    """`value` as JSON has it: read from text, arrays as lists, columns without value left out."""
    if hasattr(value, "as_py"):
        value = value.as_py()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bytes):
        value = value.decode()
    while isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"'):
        try:
            value = json.loads(value)
        except ValueError:
            break
    return value


def _read(given: Any, around: Mapping[str, Any]) -> RowTests | None:
    """The tests in `given`; `around` is the row it stands in."""
    if isinstance(given, Mapping):
        return _read_mapping(given, around)
    if isinstance(given, list | tuple):
        return _read_list([_plain(each) for each in given], around)
    if isinstance(given, str) and given.strip():
        return _read_code(given, around)
    return None


def _read_mapping(given: Mapping[str, Any], around: Mapping[str, Any]) -> RowTests | None:
    row = {**around, **{key: value for key, value in given.items() if value is not None}}
    pairs = _pairs_in(row)
    if pairs is not None:
        name = _function_name(row)
        return _stdin_tests(pairs) if not name else _call_tests(name, pairs)
    for name in ("input_output", "ground_truth"):
        if (inner := _plain(given.get(name))) is not None:
            return _read(inner, {k: v for k, v in row.items() if k != name})
    for name in ("assert_case", "test_list"):
        if (asserts := _plain(row.get(name))) is not None:
            return _read(asserts, row)
    listed = [each for name in _LISTS for each in _list(row.get(name))]
    listed += _private(row.get("private_test_cases"))
    if listed:
        return _read_list(listed, row)
    for name in ("tests", "test"):
        if (inner := _plain(row.get(name))) is not None:
            return _read(inner, {k: v for k, v in row.items() if k not in ("tests", "test")})
    return None


def _pairs_in(row: Mapping[str, Any]) -> list[tuple[Any, Any]] | None:
    """Inputs with their outputs, from two lists of the same length; None where there are none."""
    if "inputs" in row and "outputs" in row:
        return _paired(row["inputs"], row["outputs"])
    found = [
        pair
        for name in ("public_tests", "private_tests", "generated_tests")
        if isinstance(part := _plain(row.get(name)), Mapping)
        for pair in _paired(part.get("input"), part.get("output"))
    ]
    if found:
        return found
    if isinstance(_plain(row.get("input")), list) and "output" in row:
        return _paired(row["input"], row["output"])
    return None


def _paired(inputs: Any, outputs: Any) -> list[tuple[Any, Any]]:
    given, expected = _list(inputs), _list(outputs)
    if len(given) != len(expected):
        raise ValueError(f"there are {len(given)} inputs and {len(expected)} outputs")
    return list(zip(given, expected, strict=True))


def _list(value: Any) -> list[Any]:
    value = _plain(value)
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def _function_name(row: Mapping[str, Any]) -> str:
    """The function that is called; empty for programs that read and write."""
    for name in ("fn_name", "func_name", "function_name"):
        if isinstance(found := row.get(name), str) and found:
            return found
    metadata = _plain(row.get("metadata"))
    return _function_name(metadata) if isinstance(metadata, Mapping) else ""


def _read_list(items: list[Any], row: Mapping[str, Any]) -> RowTests | None:
    if all(isinstance(each, str) for each in items):
        if len(items) == 1 and items[0].count("\n"):
            return _read_code(items[0], row)
        return AssertTests([each for each in items if each.strip()], _setup(row), "")
    if not all(isinstance(each, Mapping) for each in items):
        return None
    pairs = [(_first(each, "input"), _first(each, "output", "expected_output")) for each in items]
    kinds = {str(each.get("testtype") or each.get("type") or "") for each in items}
    name = _function_name(row) or next(filter(None, map(_function_name, items)), "")
    if name and (kinds & set(_CALL_TYPES) or kinds == {""}):
        return _call_tests(name, pairs)
    if kinds & set(_CALL_TYPES):
        raise ValueError("tests call a function, and neither fn_name nor func_name names it")
    return _stdin_tests(pairs)


def _first(item: Mapping[str, Any], *names: str) -> Any:
    for name in names:
        if name in item:
            return item[name]
    raise ValueError(f"a test has no {names[0]!r}; it has: {', '.join(map(str, item))}")


def _stdin_tests(pairs: list[tuple[Any, Any]]) -> StdinTests:
    return StdinTests([(_text(given), _text(expected)) for given, expected in pairs])


def _text(value: Any) -> str:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return "\n".join(map(_text, value))
    return "" if value is None else str(value)


def _call_tests(name: str, pairs: list[tuple[Any, Any]]) -> CallTests:
    calls = [_arguments(given) for given, _ in pairs]
    results = [_deep(expected) for _, expected in pairs]
    # APPS has each result in a list of its own, so a list of one is that, or its only item
    wrapped = all(isinstance(each, list) and len(each) == 1 for each in results)
    expected = [[each, each[0]] if wrapped else [each] for each in _values(results)]
    return CallTests(name.rpartition(".")[2], calls, expected)


def _arguments(given: Any) -> list[Any]:
    """The arguments of a call: a list, or text with the JSON of one of them in each line."""
    if isinstance(given, str):
        lines = [line for line in given.split("\n") if line.strip()]
        arguments = [json.loads(line) for line in lines]
    else:
        given = _deep(given)
        arguments = given if isinstance(given, list) else [given]
    return [_with_numbers(each) for each in arguments]


def _with_numbers(value: Any) -> Any:
    """A mapping with whole numbers as keys, which JSON had to make text."""
    if isinstance(value, dict) and value and all(_is_whole(key) for key in value):
        return {int(key): each for key, each in value.items()}
    return value


def _is_whole(key: Any) -> bool:
    return isinstance(key, str) and key.lstrip("-").isdecimal()


def _values(results: list[Any]) -> list[Any]:
    """Results that are all the text of JSON, as LiveCodeBench has them, as what they stand for."""
    if not all(isinstance(each, str) for each in results):
        return results
    try:
        return [json.loads(each) for each in results]
    except ValueError:  # one is no JSON: they are texts that a function returns
        return results


def _deep(value: Any) -> Any:
    """Arrays within arrays as lists."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_deep(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _deep(each) for key, each in value.items()}
    return value


def _setup(row: Mapping[str, Any]) -> str:
    """Code that MBPP has beside its asserts."""
    parts = [row.get("test_setup_code"), row.get("setup_code"), row.get("test_imports")]
    texts = [_text(_plain(part)) for part in parts if part is not None]
    return "\n".join(text for text in texts if text.strip())


def _read_code(code: str, row: Mapping[str, Any]) -> AssertTests | None:
    """Tests that are a text of code: ``check(candidate)``, ``test_...`` functions, asserts."""
    entry_point = row.get("entry_point")
    tree = ast.parse(code)
    functions = [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]
    setup = _setup(row)
    if "check" in functions and isinstance(entry_point, str) and entry_point:
        name = entry_point.rpartition(".")[2].removesuffix("()")
        return AssertTests(["check(candidate)"], f"{setup}\n{code}", name)
    tests = [f"{name}()" for name in functions if name.startswith("test")]
    tests += [test for each in tree.body for test in _methods(each)]
    _check_parameters(tree)
    _check_output(code)
    if tests:
        return AssertTests(tests, f"{setup}\n{code}", "")
    if not any(isinstance(each, ast.Assert) for each in ast.walk(tree)):
        return None
    return AssertTests(*_split(tree, code, setup))


def _methods(node: ast.stmt) -> list[str]:
    """Calls of the test methods of a class: of unittest's, or of one that pytest would collect."""
    if not isinstance(node, ast.ClassDef):
        return []
    methods = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
    tests = [name for name in methods if name.startswith("test")]
    if any(ast.unparse(base).endswith("TestCase") for base in node.bases):
        return [f"{node.name}({name!r}).debug()" for name in tests]
    if not node.name.startswith("Test"):
        return []
    prepared = "; test.setup_method()" if "setup_method" in methods else ""
    return [f"test = {node.name}(){prepared}; test.{name}()" for name in tests]


def _check_output(code: str) -> None:
    """Raises a ValueError where tests look at what is printed, which is in another process."""
    found = _OUTPUT.search(code)
    if found is not None:
        raise ValueError(f"its tests use {found[0]}, and the program runs in another process")


def _check_parameters(tree: ast.Module) -> None:
    """Raises a ValueError where a test takes what only pytest could give it."""
    for each in tree.body:
        if isinstance(each, ast.FunctionDef) and each.name.startswith("test"):
            given = each.args
            needed = [*given.posonlyargs, *given.args][: -len(given.defaults) or None]
            if needed:
                names = ", ".join(name.arg for name in needed)
                raise ValueError(f"{each.name} takes {names} from pytest, which does not run here")


def _split(tree: ast.Module, code: str, setup: str) -> tuple[list[str], str]:
    """Each assert alone where nothing stands between that they might need, else one test."""
    definitions = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef
    asserts = [each for each in tree.body if isinstance(each, ast.Assert)]
    others = [each for each in tree.body if not isinstance(each, ast.Assert)]
    if asserts and all(isinstance(each, definitions) for each in others):
        texts = [ast.unparse(each) for each in asserts]
        return texts, "\n".join([setup, *map(ast.unparse, others)])
    return [code], setup


class _TextUnpickler(pickle.Unpickler):
    """Reads a pickle that holds one text and nothing that has to be imported."""

    def find_class(self, module: str, name: str) -> Any:
        raise ValueError(f"private_test_cases hold a {module}.{name}, which is not read")


def _private(given: Any) -> list[Any]:
    """LiveCodeBench's hidden tests: JSON, or JSON that is pickled, compressed and in base 64."""
    value = _plain(given)
    if not isinstance(value, str):
        return _list(value)
    if not value.strip():
        return []
    try:
        raw = zlib.decompressobj().decompress(base64.b64decode(value, validate=True), _MOST_BYTES)
        return _list(_TextUnpickler(io.BytesIO(raw)).load())
    except (binascii.Error, zlib.error, pickle.UnpicklingError, EOFError) as error:
        raise ValueError(f"private_test_cases: {error}") from None


def chosen(tests: RowTests, most: int | None) -> RowTests:
    """The first `most` tests; None: all."""
    if most is None:
        return tests
    match tests:
        case StdinTests(pairs):
            return StdinTests(pairs[:most])
        case CallTests(name, calls, expected):
            return CallTests(name, calls[:most], expected[:most])
    return tests._replace(asserts=tests.asserts[:most])


def number_of(tests: RowTests) -> int:
    """How many tests there are."""
    return len(tests.calls if isinstance(tests, CallTests) else tests[0])
