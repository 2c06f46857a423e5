"""Reads a number that a user's function or column gave."""

from __future__ import annotations

import math
from decimal import Decimal
from numbers import Real
from typing import Any


def real(value: Any) -> float | None:
    """The float of a number of Python, NumPy or PyTorch; None for anything else, text included.

    It may be NaN or infinite; a number too large for a float is infinite. A masked value is None.

    >>> real(True), real(10**400), real("1"), real(Decimal("0.5"))
    (1.0, inf, None, 0.5)
    """
    if not isinstance(value, Real) and getattr(value, "shape", None) == ():
        if getattr(value, "mask", False):  # NumPy's masked constant would read as 0
            return None
        value = value.item()
    if not isinstance(value, Real | Decimal):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf
