"""The scorer ``column``: a score that the row already has."""

from __future__ import annotations

import math
from typing import Any

from zerowait.scorers.real import real
from zerowait.types import Abstain, FailureKind, Outcome, Sample, Score, Skipped


def column(sample: Sample, *, key: str) -> Outcome:
    """The number, or outcome, under `key` of the sample's ``extra``.

    It abstains with ``bad_input`` where there is no number.

    >>> column(Sample("", "", extra={"rm": 0.5}), key="rm").value
    0.5
    >>> column(Sample("", "", extra={"rm": "high"}), key="rm").detail
    "extra.rm is 'high', which is no finite number"
    """
    value: Any = sample.extra.get(key)
    if isinstance(value, Score | Abstain | Skipped):
        return value
    if value is None:
        return Abstain(FailureKind.BAD_INPUT, f"extra.{key} is missing")
    number = real(value)
    if number is None or not math.isfinite(number):
        return Abstain(
            FailureKind.BAD_INPUT, f"extra.{key} is {value!r}, which is no finite number"
        )
    return Score(number, f"extra.{key}")
