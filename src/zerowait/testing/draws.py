"""Numbers that are random to look at and the same on every run: slices of a sha-256."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

_FOUR = struct.Struct("<4Q")
_UNIT = 2.0**-53


class Draws(NamedTuple):
    """Four independent numbers, uniform in [0, 1)."""

    fault: float
    first: float
    second: float
    variant: float


def draws(digest: bytes) -> Draws:
    """The four numbers in a sha-256 digest.

    >>> draws(bytes(32)).fault
    0.0
    """
    a, b, c, d = _FOUR.unpack(digest)
    return Draws((a >> 11) * _UNIT, (b >> 11) * _UNIT, (c >> 11) * _UNIT, (d >> 11) * _UNIT)


def body_key(body: bytes) -> bytes:
    """The identity of a request: the sha-256 of its body's bytes."""
    return hashlib.sha256(body).digest()


def attempt_draws(seed: int, key: bytes, attempt: int) -> Draws:
    """What chance has in store for the `attempt`-th time (from 1) that a body is asked."""
    return draws(hashlib.sha256(b"%d attempt %d " % (seed, attempt) + key).digest())


def content_draws(seed: int, messages: Sequence[Mapping[str, Any]]) -> Draws:
    """What chance has in store for these messages, however often and in whatever body they come."""
    return draws(content_digest(seed, messages))


def content_digest(seed: int, messages: Sequence[Mapping[str, Any]]) -> bytes:
    """The sha-256 of roles and contents; no other field of a message counts."""
    digest = hashlib.sha256(b"%d content " % seed)
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            text = content.encode("utf-8", "surrogatepass")
        else:
            text = msgspec.json.encode(content, order="deterministic")
        # the length keeps two messages from looking like one
        digest.update(b"%s %d " % (str(message.get("role", "")).encode(), len(text)))
        digest.update(text)
    return digest.digest()


def pick(variant: float, options: Sequence[Any]) -> Any:
    """One of `options`, chosen by `variant` in [0, 1).

    >>> pick(0.99, ["a", "b", "c"])
    'c'
    """
    return options[int(variant * len(options))]
