"""Reproducible random numbers: slices of a sha-256 digest."""

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
    """The random numbers of one attempt.

    Args:
        seed: of the script.
        key: of the request's body.
        attempt: number of this attempt of the body, from 1.
    """
    return draws(hashlib.sha256(b"%d attempt %d " % (seed, attempt) + key).digest())


def content_draws(seed: int, messages: Sequence[Mapping[str, Any]]) -> Draws:
    """The random numbers of these messages, equal for every attempt and every body with them."""
    return draws(content_digest(seed, messages))


def content_digest(seed: int, messages: Sequence[Mapping[str, Any]]) -> bytes:
    """The sha-256 of roles and contents; other fields of a message are ignored."""
    digest = hashlib.sha256(b"%d content " % seed)
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            text = content.encode("utf-8", "surrogatepass")
        else:
            text = msgspec.json.encode(content, order="deterministic")
        # The length separates messages, so that two never hash like one
        digest.update(b"%s %d " % (str(message.get("role", "")).encode(), len(text)))
        digest.update(text)
    return digest.digest()


def pick(variant: float, options: Sequence[Any]) -> Any:
    """One of `options`, chosen by `variant` in [0, 1).

    >>> pick(0.99, ["a", "b", "c"])
    'c'
    """
    return options[int(variant * len(options))]
