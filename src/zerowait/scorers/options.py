"""Checks options against a scorer's signature when the configuration is read."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from zerowait.config.messages import locate, number_hint, plain_words
from zerowait.errors import ConfigError, did_you_mean


def option_names(scorer: Callable[..., Any]) -> list[str]:
    """The keyword-only parameters of `scorer`: what a configuration may set.

    >>> def scorer(sample, *, score: float = 1.0): ...
    >>> option_names(scorer)
    ['score']
    """
    parameters = inspect.signature(scorer).parameters.values()
    return [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]


def check_signature(scorer: Callable[..., Any], options: Mapping[str, Any], *, where: str) -> None:
    """Raises a ConfigError unless `options` are values that `scorer` takes.

    >>> def scorer(sample, *, method: Literal["strict", "flexible"] = "strict"): ...
    >>> check_signature(scorer, {"method": "strct"}, where="gsm8k")
    Traceback (most recent call last):
    zerowait.errors.ConfigError: gsm8k: method is 'strct'; did you mean 'strict'?
    """
    names, hints = option_names(scorer), _hints(scorer)
    for name, value in options.items():
        if name not in names:
            hint = did_you_mean(name, names) if names else "; it has none"
            raise ConfigError(f"{where} has no option {name!r}{hint}")
        _check_value(f"{where}: {name}", value, hints[name])
    parameters = inspect.signature(scorer).parameters
    for name in names:
        if parameters[name].default is inspect.Parameter.empty and name not in options:
            raise ConfigError(f"{where} needs the option {name!r}")


def _check_value(where: str, value: Any, hint: Any) -> None:
    words = _words(hint)
    if words and value is not None and value not in words:
        raise ConfigError(f"{where} is {value!r}{did_you_mean(str(value), words)}")
    try:
        converted = msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        _, problem = locate(str(error))
        raise ConfigError(
            f"{where} is {value!r}: it {plain_words(problem)}{number_hint(value)}"
        ) from None
    if isinstance(converted, float) and not math.isfinite(converted):
        raise ConfigError(f"{where} must be a finite number, not {value!r}")


def _words(hint: Any) -> list[str]:
    """The words of a Literal, also inside of ``Literal[…] | None``."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        return [word for part in get_args(hint) for word in _words(part)]
    return []


@lru_cache(maxsize=256)
def _hints(scorer: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(scorer)
