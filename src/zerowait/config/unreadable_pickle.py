"""Pickles in which no key can be read: an error or a log may show one as text.

They stay pickles, so that a configuration travels to the processes of a job. This keeps keys out of
sight; it is no encryption.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable
from typing import Any


def veiled(make: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    """What ``__reduce__`` returns for ``make(*args)``: the arguments behind a one-time pad.

    >>> unveil, parts = veiled(str.upper, "sk-planted")
    >>> unveil(*parts), b"planted" in pickle.dumps(parts)
    ('SK-PLANTED', False)
    """
    plain = pickle.dumps(args)
    pad = secrets.token_bytes(len(plain))
    return _unveiled, (make, pad, _either(pad, plain))


def _unveiled(make: Callable[..., Any], pad: bytes, covered: bytes) -> Any:
    return make(*pickle.loads(_either(pad, covered)))  # noqa: S301 - a pickle is being read anyway


def _either(pad: bytes, other: bytes) -> bytes:
    size = len(pad)
    return (int.from_bytes(pad) ^ int.from_bytes(other)).to_bytes(size)
