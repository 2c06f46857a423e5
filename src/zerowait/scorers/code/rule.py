"""The scorer ``code``: its options, what is run for a row, and what the runs mean."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which
from typing import Any, Final, Literal, TypeAlias

import msgspec

from zerowait.config.messages import locate, plain_words
from zerowait.config.sandbox import RemoteSandboxSettings
from zerowait.errors import ConfigError
from zerowait.scorers.code.comparison import Compare, plain, same_output, same_value
from zerowait.scorers.code.program import Program, Run, RunEnding
from zerowait.scorers.code.response import program_in
from zerowait.scorers.code.row_tests import (
    AssertTests,
    CallTests,
    RowTests,
    StdinTests,
    chosen,
    number_of,
    read_tests,
)
from zerowait.scorers.code.sources import HARNESS, PRELUDE
from zerowait.scorers.thinking import spoken
from zerowait.types import Abstain, FailureKind, Outcome, Sample, Score

CreditRule: TypeAlias = Literal["all", "share"]

_SLOWEST: Final = 4
"""A program that sleeps has so many times its processor time until its deadline."""

_RUN_PRELUDE: Final = f"exec({PRELUDE!r}, {{'__name__': '__main__'}})"
_REMOTE_HARNESS: Final = (
    "import builtins\nbuiltin_names = dir(builtins)\n"
    f"{_RUN_PRELUDE}\nexec(compile({HARNESS!r}, 'harness.py', 'exec'), globals())\n"
)
_SHOWN_CHARS: Final = 60
_MIB: Final = 1 << 20


class CodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the scorer ``code``.

    Args:
        score: for a program that passes all tests.
        credit: ``all``: 0 unless every test passes; ``share``: the share of tests that pass, times
            `score`.
        tests: the column of ``extra`` with the tests; None: the ground truth, or a known column.
        max_tests: only the first so many; None: all.
        compare: how outputs are compared.
        tolerance: of floats.
        time_limit_s: processor time for each test.
        memory_mb: address space of a program.
        output_mb: the longest output.
        language: of the program.
        python: the interpreter, where programs need packages of their own.
        sandbox: a remote one.
    """

    score: float = 1.0
    credit: CreditRule = "all"
    tests: str | None = None
    max_tests: int | None = None
    compare: Compare = "lines"
    tolerance: float = 1e-6
    time_limit_s: float = 6.0
    memory_mb: int = 1024
    output_mb: int = 8
    language: str = "python"
    python: str | None = None
    sandbox: RemoteSandboxSettings | None = None

    def __post_init__(self) -> None:
        for name in ("max_tests", "time_limit_s", "memory_mb", "output_mb"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, not {value}")
        if self.tolerance < 0:
            raise ValueError(f"tolerance must not be below 0, and is {self.tolerance}")
        if self.language != "python" and self.sandbox is None:
            raise ValueError(
                f"language is {self.language!r}: on this machine programs are Python; others run "
                "in a remote sandbox, sandbox: {url: ...}"
            )
        if self.python is not None and self.sandbox is not None:
            raise ValueError("python is for programs on this machine, and sandbox is remote")


def code(  # noqa: PLR0913 - its parameters are the scorer's options
    sample: Sample,
    *,
    score: float = 1.0,
    credit: CreditRule = "all",
    tests: str | None = None,
    max_tests: int | None = None,
    compare: Compare = "lines",
    tolerance: float = 1e-6,
    time_limit_s: float = 6.0,
    memory_mb: int = 1024,
    output_mb: int = 8,
    language: str = "python",
    python: str | None = None,
    sandbox: Mapping[str, Any] | None = None,
) -> Outcome:
    """`score` when the last code block of the response passes the row's tests, else 0.

    It is run by an engine, in a sandbox; a direct call abstains. The options are `CodeOptions`.
    """
    del score, credit, tests, max_tests, compare, tolerance, time_limit_s, memory_mb, output_mb
    del sample, language, python, sandbox
    why = "the scorer code runs programs, which an engine does: zerowait.open, or an Engine"
    return Abstain(FailureKind.BAD_INPUT, why)


def code_options(options: Mapping[str, Any]) -> CodeOptions:
    """The options of the scorer ``code``, as a configuration has them.

    Raises:
        ConfigError: they do not fit.
    """
    try:
        return msgspec.convert(dict(options), CodeOptions)
    except msgspec.ValidationError as error:
        path, problem = locate(str(error))
        at = ".".join(map(str, path))
        raise ConfigError(f"code: {f'{at} ' if at else ''}{plain_words(problem)}") from None


def check_code(options: Mapping[str, Any]) -> None:
    """Raises a ConfigError unless the options fit, and the interpreter exists."""
    found = code_options(options)
    if found.python is not None and which(str(Path(found.python).expanduser())) is None:
        raise ConfigError(f"code: python is {found.python!r}, and there is no such program")


class Assignment(msgspec.Struct, frozen=True):
    """What is run for a row, and the tests whose results the runs are.

    Args:
        programs: to run, in order; each is one test, or one is all of them.
        tests: of the row.
    """

    programs: list[Program]
    tests: RowTests


def assignment(sample: Sample, options: CodeOptions) -> Assignment | Score | Abstain:
    """What is run for `sample`; or its outcome, where nothing has to be run."""
    tests = read_tests(sample, options.tests)
    if isinstance(tests, Abstain):
        return tests
    tests = chosen(tests, options.max_tests)
    if not isinstance(tests, StdinTests) and options.language != "python":
        why = f"the row's tests call Python functions, and language is {options.language}"
        return Abstain(FailureKind.BAD_INPUT, why)
    program = program_in(spoken(sample), options.language)
    program = program.encode(errors="replace").decode()  # halves of surrogate pairs
    if not program:
        return Score(0.0, "no program in the response", _detail(0, number_of(tests)))
    return Assignment(_programs(program, tests, options), tests)


def _programs(program: str, tests: RowTests, options: CodeOptions) -> list[Program]:
    limit_s = options.time_limit_s
    common = Program(
        source=program,
        language=options.language,
        cpu_s=limit_s,
        wall_s=_wall_s(limit_s),
        memory_bytes=options.memory_mb * _MIB,
        output_bytes=options.output_mb * _MIB,
    )
    if isinstance(tests, StdinTests):
        with_prelude = options.sandbox is not None and options.language == "python"
        source = _with_prelude(program) if with_prelude else program
        return [
            msgspec.structs.replace(common, source=source, stdin=given.encode(errors="replace"))
            for given, _ in tests.pairs
        ]
    if isinstance(tests, CallTests):
        asked: dict[str, Any] = {"calls": [[tests.name, arguments] for arguments in tests.calls]}
    else:
        asked = tests._asdict()
    most = number_of(tests) + 1  # loading the program counts as one
    settings = {"program": program, "cpu_s": limit_s, "wall_s": _wall_s(limit_s)}
    harness = msgspec.structs.replace(
        common,
        source=HARNESS if options.sandbox is None else _REMOTE_HARNESS,
        stdin=_piece(settings) + _piece(asked),
        is_harness=True,
        cpu_s=limit_s * most,
        wall_s=_wall_s(limit_s) * most,
    )
    return [harness]


def _wall_s(cpu_s: float) -> float:
    return _SLOWEST * cpu_s + 1


def _piece(value: Any) -> bytes:
    data = msgspec.json.encode(value)
    return struct.pack("Q", len(data)).hex().encode() + data


def _with_prelude(program: str) -> str:
    """A program for a sandbox that has not loaded the prelude."""
    if "from __future__" in program:  # which has to stand first
        return program
    return f"{_RUN_PRELUDE}\n{program}"


def failed_so_far(
    assigned: Assignment, runs: Sequence[Run | Abstain], options: CodeOptions
) -> bool:
    """Whether no further program has to be run, because the row has failed as a whole."""
    if not runs or not isinstance(assigned.tests, StdinTests):
        return False
    last = runs[-1]
    if isinstance(last, Abstain):
        return True
    if options.credit == "share":
        return sum(isinstance(run, Run) and _is_late(run) for run in runs) >= _MOST_LATE
    return _stdin_problem(last, assigned.tests.pairs[len(runs) - 1][1], options) != ""


_MOST_LATE: Final = 3
"""After so many tests that ran out of time the rest is taken to do so, too."""


def _is_late(run: Run) -> bool:
    return run.ending is RunEnding.OUT_OF_TIME


def outcome_of_runs(
    assigned: Assignment, runs: Sequence[Run | Abstain], options: CodeOptions
) -> Outcome:
    """The outcome of a row, from what became of its programs."""
    for run in runs:
        if isinstance(run, Abstain):
            return run
    done = [run for run in runs if isinstance(run, Run)]
    tests = assigned.tests
    if isinstance(tests, StdinTests):
        problems = [
            _stdin_problem(run, expected, options)
            for run, (_, expected) in zip(done, tests.pairs, strict=False)
        ]
    else:
        found = _harness_problems(done[0], tests, options)
        if isinstance(found, Abstain):
            return found
        problems = found
    total = number_of(tests)
    passed = problems.count("")
    problem = next(filter(None, problems), "")
    why = f"{passed} of {total} tests passed"
    if problem:
        why += f"; test {problems.index(problem) + 1}: {problem}"
    share = passed / total if options.credit == "share" else float(passed == total)
    return Score(options.score * share, why, _detail(passed, total))


def _detail(passed: int, total: int) -> dict[str, Any]:
    return {"passed": passed, "tests": total}


def _stdin_problem(run: Run, expected: str, options: CodeOptions) -> str:
    """Why a test failed; empty where it passed."""
    match run.ending:
        case RunEnding.FINISHED:
            said = run.stdout.decode(errors="replace")
            compare, tolerance = options.compare, options.tolerance
            if same_output(said, expected, compare=compare, tolerance=tolerance):
                return ""
            return f"printed {_shown(said)}, expected {_shown(expected)}"
        case RunEnding.FAILED:
            last = run.stderr.strip().rpartition("\n")[2]
            return f"ended with {run.code}: {_shown(last)}" if last else f"ended with {run.code}"
    return str(run.ending)


def _shown(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…")


class _Report(msgspec.Struct, frozen=True):
    """What the harness prints."""

    loaded: str | None
    results: list[list[Any]]


def _harness_problems(
    run: Run, tests: CallTests | AssertTests, options: CodeOptions
) -> list[str] | Abstain:
    """Why each test failed; an abstention where that says nothing of the program."""
    total = number_of(tests)
    if run.ending is not RunEnding.FINISHED:
        last = run.stderr.strip().rpartition("\n")[2]
        return [f"{run.ending}: {_shown(last)}"] * total
    try:
        report = msgspec.json.decode(run.stdout, type=_Report)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Abstain(FailureKind.CRASHED, f"the sandbox's harness did not report: {error}")
    if report.loaded is not None:
        if report.loaded.startswith("the machine gave"):
            return Abstain(FailureKind.TIMEOUT, report.loaded)
        return [f"loading it: {report.loaded}"] * total
    problems = []
    for index, result in enumerate(report.results):
        kind, *rest = result
        if kind in _NOT_THE_PROGRAM:
            return Abstain(_NOT_THE_PROGRAM[kind], str(rest[0]))
        problems.append(_result_problem(kind, rest, index, tests, options))
    return problems


_NOT_THE_PROGRAM: Final = {"unusable": FailureKind.BAD_INPUT, "starved": FailureKind.TIMEOUT}


def _result_problem(
    kind: str, rest: list[Any], index: int, tests: CallTests | AssertTests, options: CodeOptions
) -> str:
    if kind == "passed":
        return ""
    if kind != "value" or not isinstance(tests, CallTests):
        said = str(rest[0]) if rest else kind
        if isinstance(tests, AssertTests) and said.startswith("AssertionError"):
            said = f"{_shown(said.removesuffix(': '))} in {_shown(tests.asserts[index])}"
        return said
    expected = tests.expected[index]
    try:
        value = plain(rest[0])
        if any(same_value(value, each, tolerance=options.tolerance) for each in expected):
            return ""
        return f"returned {_shown(repr(value))}, expected {_shown(repr(expected[-1]))}"
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        return f"returned what cannot be read or shown: {error}"
