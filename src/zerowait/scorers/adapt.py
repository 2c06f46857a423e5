"""The pure part of calling a user's function: what it is given, and what its answer means.

Three faces are understood, told apart by the signature: ``f(sample, **options)``, verl's
``f(data_source, solution_str, ground_truth, extra_info, **options)``, and verl's
``f(data_sources, solution_strs, ground_truths, extra_infos, **options)``, which takes lists.
"""

from __future__ import annotations

import inspect
import math
import sysconfig
import traceback
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from zerowait.errors import ConfigError, did_you_mean
from zerowait.scorers.real import real
from zerowait.types import Abstain, FailureKind, Outcome, Sample, Score, Skipped

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of one call."""

_VERL_NAMES = ("data_source", "solution_str", "ground_truth", "extra_info")
_LIST_NAMES = ("data_sources", "solution_strs", "ground_truths", "extra_infos")
_LONGEST_MESSAGE_CHARS = 300
_OURS: Final = Path(__file__).resolve().parents[1]
_PYTHONS: Final = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_NOT_FINITE = "expected a finite number"
_FACES = (
    "f(sample, **options), f(data_source, solution_str, ground_truth, extra_info, **options), or "
    "the same with lists: f(data_sources, solution_strs, ground_truths, extra_infos, **options)"
)


class Convention(msgspec.Struct, frozen=True):
    """How a function wants to be called.

    Args:
        face: ``sample``, ``verl`` for the four named columns, or ``lists`` for lists of those.
        columns: the columns of verl's faces that the function takes.
        options: names of its further parameters.
        required: those of `options` without a default.
        open_ended: it takes any further keyword.
    """

    face: Literal["sample", "verl", "lists"]
    columns: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    open_ended: bool = False

    def arguments(self, samples: Sequence[Sample], options: Mapping[str, Any]) -> Arguments:
        """What the function is called with; the mapping it gets as extra_info is its own copy.

        Only a function that takes lists takes more than one sample.
        """
        if self.face == "sample":
            return tuple(samples), dict(options)
        rows = [_columns(sample) for sample in samples]
        if self.face == "verl":
            (row,) = rows
            return (), {name: row[_VERL_NAMES.index(name)] for name in self.columns} | dict(options)
        lists = dict(zip(_LIST_NAMES, map(list, zip(*rows, strict=True)), strict=True))
        return (), {name: lists[name] for name in self.columns} | dict(options)

    def check(self, options: Mapping[str, Any], *, where: str) -> None:
        """Raises a ConfigError unless the function takes exactly these `options`."""
        for name in options:
            if name not in self.options and not self.open_ended:
                hint = did_you_mean(name, self.options) if self.options else "; it has none"
                raise ConfigError(f"{where} has no option {name!r}{hint}")
        for name in self.required:
            if name not in options:
                raise ConfigError(f"{where} needs the option {name!r}")


def convention_of(function: Callable[..., Any], name: str = "the function") -> Convention:
    """How `function` wants to be called.

    Raises:
        ConfigError: its signature is neither of the two faces.

    >>> def score(data_source, solution_str, ground_truth, extra_info=None): ...
    >>> convention_of(score).face
    'verl'
    >>> convention_of(lambda sample: 1.0).face
    'sample'
    """
    parameters = _parameters(function, name)
    named = {key: each for key, each in parameters.items() if not _is_star(each)}
    open_ended = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    if "solution_strs" in named:
        columns = _LIST_NAMES if open_ended else tuple(key for key in named if key in _LIST_NAMES)
        rest = {key: each for key, each in named.items() if key not in _LIST_NAMES}
        return _convention("lists", rest, columns=columns, open_ended=open_ended)
    if "solution_str" in named or (open_ended and len(parameters) == 1):
        columns = _VERL_NAMES if open_ended else tuple(key for key in named if key in _VERL_NAMES)
        rest = {key: each for key, each in named.items() if key not in _VERL_NAMES}
        return _convention("verl", rest, columns=columns, open_ended=open_ended)
    first = next(iter(named), None)
    if first is None or named[first].kind is inspect.Parameter.KEYWORD_ONLY:
        raise ConfigError(f"cannot tell how to call {name}{_signature_text(function)}: {_FACES}")
    rest = {key: each for key, each in named.items() if key != first}
    needs = [key for key, each in rest.items() if _positional(each) and _is_required(each)]
    if needs:
        raise ConfigError(f"{name} also needs {', '.join(needs)}; a scorer is {_FACES}")
    return _convention("sample", rest, columns=(), open_ended=open_ended)


def call_arguments(
    function: Callable[..., Any], sample: Sample, options: Mapping[str, Any] | None = None
) -> Arguments:
    """The positional and keyword arguments with which `function` judges `sample`.

    >>> call_arguments(lambda solution_str, ground_truth: 0.0, Sample("2+2?", "4", "4"))
    ((), {'solution_str': '4', 'ground_truth': '4'})
    """
    return convention_of(function).arguments([sample], options or {})


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling `function` is known to give an awaitable: also of partials and objects.

    >>> async def judge(sample): ...
    >>> is_async(judge), is_async(partial(judge)), is_async(print)
    (True, True, False)
    """
    while isinstance(function, partial):
        function = function.func
    if inspect.iscoroutinefunction(function):
        return True
    return inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def outcome_of(returned: Any, name: str) -> Outcome:
    """The outcome that a scorer called `name` meant by what it returned.

    A finite number is a Score; an outcome is itself; None is an Abstain (``bad_input``); a mapping
    is the outcome of its ``score``, the other keys become the detail. Anything else, NaN and
    infinity included, is an Abstain (``crashed``): never a number nobody chose.

    >>> outcome_of({"score": True, "acc": 1}, "my:f")
    Score(value=1.0, why='', detail={'acc': 1})
    >>> outcome_of(float("nan"), "my:f").detail
    'my:f returned nan; expected a finite number'
    """
    try:
        return _outcome_of(returned, name)
    except Exception as error:  # noqa: BLE001 - the methods of what was returned may do anything
        why = f"which cannot be read: {_type(error)}: {_text(error)}"
        return _crashed(f"{name} returned a {_type(returned)}, {why}")


def outcomes_of(returned: Any, count: int, name: str) -> list[Outcome] | Abstain:
    """The outcomes that a function which takes lists meant by what it returned for `count` samples.

    An abstention when it is no list of `count` items: whose they are cannot be told then.

    >>> outcomes_of([1.0, {"score": 0.5}], 2, "my:f")[1].value
    0.5
    >>> outcomes_of([1.0], 2, "my:f").detail
    'my:f returned 1 results for 2 samples'
    """
    if getattr(returned, "shape", ()) and hasattr(returned, "tolist"):
        returned = returned.tolist()
    if inspect.isawaitable(returned):
        _discard(returned)
    if not isinstance(returned, list | tuple):
        return _crashed(f"{name} takes lists but returned a {_type(returned)}; expected a list")
    if len(returned) != count:
        return _crashed(f"{name} returned {len(returned)} results for {count} samples")
    return [outcome_of(each, name) for each in returned]


def crash(error: BaseException, name: str) -> Abstain:
    """The abstention of a scorer called `name` that raised `error`.

    It says in which file and line of the user's code, where it was raised there.

    >>> crash(ValueError("no digits"), "my:f").detail
    'my:f raised ValueError: no digits'
    """
    message = _text(error)
    at = raised_at(error)
    return _crashed(f"{name} raised {_type(error)}{message and f': {message}'}", at)


def raised_at(error: BaseException) -> str:
    """Where in the user's own code `error` was raised or let through, as a half sentence.

    Empty where it came through none: zerowait's code is none, nor is Python's own. That of
    installed packages counts where there is no other.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}:{error.lineno})"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_absolute() and not _is_ours_or_pythons(Path(frame.filename))
    ]
    own = [frame for frame in frames if not _INSTALLED & set(Path(frame.filename).parts)]
    found = own[-1] if own else frames[0] if frames else None
    return "" if found is None else f" ({found.filename}:{found.lineno}, in {found.name})"


def _is_ours_or_pythons(file: Path) -> bool:
    if _INSTALLED & set(file.parts):
        return file.is_relative_to(_OURS)
    return any(file.is_relative_to(root) for root in (_OURS, *_PYTHONS))


def is_not_finite(outcome: Outcome) -> bool:
    """Whether `outcome` is what becomes of a NaN or an infinity.

    >>> is_not_finite(outcome_of(float("nan"), "my:f")), is_not_finite(outcome_of("1", "my:f"))
    (True, False)
    """
    return isinstance(outcome, Abstain) and outcome.detail.endswith(_NOT_FINITE)


def _outcome_of(returned: Any, name: str) -> Outcome:
    if isinstance(returned, Score | Abstain | Skipped):
        return returned
    if isinstance(returned, Mapping):
        return _outcome_of_mapping(returned, name)
    if returned is None:
        return Abstain(FailureKind.BAD_INPUT, f"{name} returned None")
    if inspect.isawaitable(returned):
        _discard(returned)
        return _crashed(f"{name} returned a {_type(returned)} that was not awaited")
    return _outcome_of_number(returned, name)


def _outcome_of_mapping(returned: Mapping[Any, Any], name: str) -> Outcome:
    if "score" not in returned:
        keys = ", ".join(map(str, returned)) or "none"
        return _crashed(f"{name} returned a {_type(returned)} without 'score'; its keys: {keys}")
    if isinstance(returned["score"], Mapping):
        return _crashed(f"{name} returned a {_type(returned['score'])} as 'score'")
    outcome = outcome_of(returned["score"], name)
    if not isinstance(outcome, Score):
        return outcome
    rest = {str(key): _plain(value) for key, value in returned.items() if key != "score"}
    return Score(outcome.value, outcome.why, outcome.detail | rest)


def _plain(value: Any) -> Any:
    """A `Decimal` as the float it would be as a score; on its way it would become a text."""
    return float(value) if isinstance(value, Decimal) else value


def _outcome_of_number(returned: Any, name: str) -> Outcome:
    value = real(returned)
    if value is None:
        shown = f" {returned[:40]!r}" if isinstance(returned, str | bytes) else ""
        return _crashed(f"{name} returned a {_type(returned)}{shown}; expected a number")
    if not math.isfinite(value):
        return _crashed(f"{name} returned {value}; {_NOT_FINITE}")
    return Score(value)


def _columns(sample: Sample) -> tuple[Any, ...]:
    """What verl's columns hold, in the order of their names."""
    return sample.data_source, sample.response, sample.ground_truth, dict(sample.extra)


def _crashed(message: str, at: str = "") -> Abstain:
    longest = max(_LONGEST_MESSAGE_CHARS - len(at), _LONGEST_MESSAGE_CHARS // 2)
    if len(message) > longest:
        message = f"{message[: longest - 1]}…"
    return Abstain(FailureKind.CRASHED, message + at)


def _text(error: BaseException) -> str:
    """What an error says; users' errors may raise when they are asked."""
    try:
        return str(error)
    except Exception as again:  # noqa: BLE001 - another one of the user's
        return f"(its message cannot be read: {_type(again)})"


def _discard(awaitable: Any) -> None:
    """Ends what nobody will await, so that it does not complain at some later time."""
    if inspect.iscoroutine(awaitable):
        awaitable.close()


def _type(value: Any) -> str:
    return type(value).__name__


def _parameters(function: Callable[..., Any], name: str) -> dict[str, inspect.Parameter]:
    if inspect.isclass(function):
        raise ConfigError(f"{name} is a class; name a function, or an object that can be called")
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} has no signature to read; wrap it: {_FACES}") from None


def _signature_text(function: Callable[..., Any]) -> str:
    return str(inspect.signature(function))


def _convention(
    face: Literal["sample", "verl", "lists"],
    rest: Mapping[str, inspect.Parameter],
    *,
    columns: tuple[str, ...],
    open_ended: bool,
) -> Convention:
    required = tuple(key for key, each in rest.items() if _is_required(each))
    return Convention(face, columns, tuple(rest), required, open_ended)


def _is_star(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)


def _positional(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty
