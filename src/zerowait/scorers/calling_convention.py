"""How a user's function wants to be called, as its signature says.

Three signatures are understood: ``f(sample, **options)``, verl's
``f(data_source, solution_str, ground_truth, extra_info, **options)``, and the same with lists:
``f(data_sources, solution_strs, ground_truths, extra_infos, **options)``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import msgspec

from zerowait.errors import ConfigError, did_you_mean
from zerowait.types import Sample

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of one call."""

Signature: TypeAlias = Literal["sample", "columns", "lists"]
"""A sample, verl's four named columns, or lists of those columns."""

_VERL_NAMES = ("data_source", "solution_str", "ground_truth", "extra_info")
_LIST_NAMES = ("data_sources", "solution_strs", "ground_truths", "extra_infos")
_SIGNATURES = (
    "f(sample, **options), f(data_source, solution_str, ground_truth, extra_info, **options), or "
    "the same with lists: f(data_sources, solution_strs, ground_truths, extra_infos, **options)"
)


class Convention(msgspec.Struct, frozen=True):
    """The calling convention of a function.

    Args:
        signature: ``sample``, ``columns`` for verl's four columns, or ``lists`` for lists of those.
        columns: the names of verl's columns that the function takes.
        options: names of its further parameters.
        required: those of `options` without a default.
        open_ended: whether it takes any further keyword.
    """

    signature: Signature
    columns: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    open_ended: bool = False

    def arguments(self, samples: Sequence[Sample], options: Mapping[str, Any]) -> Arguments:
        """The arguments of a call; the mapping passed as extra_info is a copy.

        Args:
            samples: one, or several for a function that takes lists.
            options: its further keyword arguments.
        """
        if self.signature == "sample":
            return tuple(samples), dict(options)
        rows = [_columns(sample) for sample in samples]
        if self.signature == "columns":
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
    """The calling convention of `function`, called `name` in errors.

    Raises:
        ConfigError: its signature is none of the three.

    >>> def score(data_source, solution_str, ground_truth, extra_info=None): ...
    >>> convention_of(score).signature
    'columns'
    >>> convention_of(lambda sample: 1.0).signature
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
        return _convention("columns", rest, columns=columns, open_ended=open_ended)
    first = next(iter(named), None)
    if first is None or named[first].kind is inspect.Parameter.KEYWORD_ONLY:
        raise ConfigError(
            f"cannot tell how to call {name}{inspect.signature(function)}: {_SIGNATURES}"
        )
    rest = {key: each for key, each in named.items() if key != first}
    needs = [key for key, each in rest.items() if _positional(each) and _is_required(each)]
    if needs:
        raise ConfigError(f"{name} also needs {', '.join(needs)}; a scorer is {_SIGNATURES}")
    return _convention("sample", rest, columns=(), open_ended=open_ended)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether `function` is asynchronous; looks through partials and callable objects.

    >>> async def judge(sample): ...
    >>> is_async(judge), is_async(partial(judge)), is_async(print)
    (True, True, False)
    """
    while isinstance(function, partial):
        function = function.func
    if inspect.iscoroutinefunction(function):
        return True
    return inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _columns(sample: Sample) -> tuple[Any, ...]:
    """The values of verl's columns, in the order of their names."""
    return sample.data_source, sample.response, sample.ground_truth, dict(sample.extra)


def _parameters(function: Callable[..., Any], name: str) -> dict[str, inspect.Parameter]:
    if inspect.isclass(function):
        raise ConfigError(f"{name} is a class; name a function, or an object that can be called")
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} has no signature to read; wrap it: {_SIGNATURES}") from None


def _convention(
    signature: Signature,
    rest: Mapping[str, inspect.Parameter],
    *,
    columns: tuple[str, ...],
    open_ended: bool,
) -> Convention:
    required = tuple(key for key, each in rest.items() if _is_required(each))
    return Convention(signature, columns, tuple(rest), required, open_ended)


def _is_star(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)


def _positional(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty
