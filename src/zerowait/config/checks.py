"""Checks that several settings share."""

from __future__ import annotations

import math


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
