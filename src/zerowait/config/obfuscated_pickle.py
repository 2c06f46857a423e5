"""Obfuscated pickles: an API key in one cannot be read when an error or a log shows it as text.

They stay pickles, so that a configuration can be sent to the processes of a job. This is no
encryption: unpickling gives the key back.
"""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable
from typing import Any


def obfuscated(make: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    """The return value of ``__reduce__`` for ``make(*args)``; the arguments are XORed with a pad.

    >>> restore, parts = obfuscated(str.upper, "sk-planted")
    >>> restore(*parts), b"planted" in pickle.dumps(parts)
    ('SK-PLANTED', False)
    """
    plain = pickle.dumps(args)
    pad = secrets.token_bytes(len(plain))
    return _restored, (make, pad, _xor(pad, plain))


def _restored(make: Callable[..., Any], pad: bytes, masked: bytes) -> Any:
    return make(*pickle.loads(_xor(pad, masked)))  # noqa: S301 - a pickle is being read anyway


def _xor(pad: bytes, other: bytes) -> bytes:
    size = len(pad)
    return (int.from_bytes(pad) ^ int.from_bytes(other)).to_bytes(size)
