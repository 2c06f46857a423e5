"""Checks of single values, shared by the settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from zerowait.errors import ConfigError


def finite(name: str, value: float) -> None:
    """Raise a ValueError unless `value` is a number."""
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, not {value}")


def at_least(name: str, value: float, least: float) -> None:
    """Raise a ValueError unless `value` is a number of at least `least`."""
    if not (math.isfinite(value) and value >= least):
        raise ValueError(f"{name} must be at least {least}, not {value}")


def positive(name: str, value: float) -> None:
    """Raise a ValueError unless `value` is a number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be greater than 0, not {value}")


def not_negative(name: str, value: float) -> None:
    """Raise a ValueError unless `value` is a number of at least 0."""
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must not be negative, and not {value}")


def at_most(name: str, value: float, most: float) -> None:
    """Raise a ValueError when `value` is greater than `most`."""
    if value > most:
        raise ValueError(f"{name} must be at most {most:g}, not {value:g}")


def json_only(name: str, value: Any) -> None:
    """Raise a ValueError unless JSON has a form for `value` and all that is in it."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            json_only(f"{name}.{key}", item)
    elif isinstance(value, list | tuple):
        for item in value:
            json_only(name, item)
    elif isinstance(value, float):
        finite(name, value)
    elif not (value is None or isinstance(value, str | int)):
        raise ValueError(f"{name} must be something that JSON has, not a {type(value).__name__}")


def seconds(name: str, given: Any) -> float:
    """An argument of a call as a number of seconds.

    Args:
        name: of the argument, for the error.
        given: its value.

    Raises:
        ConfigError: it is no finite number above 0.
    """
    is_number = isinstance(given, Real) and not isinstance(given, bool)
    if not (is_number and math.isfinite(value := float(given)) and value > 0):
        raise ConfigError(f"{name} must be a number of seconds greater than 0, not {given!r}")
    return value
