"""What travels to a hub and back: each call's part is pickled alone, and fails alone."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from zerowait.errors import DataError

Pickles: TypeAlias = Callable[[Any], bytes]
Numbered: TypeAlias = tuple[int, Any]
"""A call's number, and what is sent for it."""


def encoded_parts(parts: Iterable[Numbered], given_up: Sequence[int], *, dumps: Pickles) -> bytes:
    """Calls' parts, and the numbers of calls that are given up."""
    return pickle.dumps(([(number, _pickled(part, dumps)) for number, part in parts], given_up))


def decoded_parts(parcel: bytes) -> tuple[list[Numbered], Sequence[int]]:
    """What was packed; an error in place of what could not be sent or cannot be read here."""
    parts, given_up = pickle.loads(parcel)  # noqa: S301 - from a member of the job
    return [(number, _unpickled(part)) for number, part in parts], given_up


def _pickled(part: Any, dumps: Pickles) -> bytes:
    try:
        return dumps(part)
    except Exception as error:  # noqa: BLE001 - whatever a class raises that is not to be pickled
        return pickle.dumps(DataError(f"it cannot be sent to another process: {_told(error)}"))


def _unpickled(part: bytes) -> Any:
    try:
        return pickle.loads(part)  # noqa: S301 - as above
    except Exception as error:  # noqa: BLE001 - a class, say, that nobody here can import
        return DataError(f"the process that it was sent to cannot read it: {_told(error)}")


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
