"""A score that the row already has."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from zerowait.types import Abstain, FailureKind, Outcome, Sample, Score, Skipped


def column(sample: Sample, *, key: str) -> Outcome:
    """The number that stands under `key` of the sample's ``extra``, or the outcome that does.

    It abstains with ``bad_input`` where there is none, or something else.

    >>> column(Sample("", "", extra={"rm": 0.5}), key="rm").value
    0.5
    >>> column(Sample("", "", extra={"rm": "high"}), key="rm").detail
    "extra.rm is 'high', which is no finite number"
    """
    value: Any = sample.extra.get(key)
    if isinstance(value, Score | Abstain | Skipped):
        return value
    if hasattr(value, "tolist"):  # numpy's scalars, which data frames bring
        value = value.tolist()
    if value is None:
        return Abstain(FailureKind.BAD_INPUT, f"extra.{key} is missing")
    if not isinstance(value, Real) or not math.isfinite(value):
        return Abstain(
            FailureKind.BAD_INPUT, f"extra.{key} is {value!r}, which is no finite number"
        )
    return Score(float(value), f"extra.{key}")
