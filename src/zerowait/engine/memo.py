"""Keys of requests, by the texts that they are made of."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

import msgspec

_KEPT: Final = 65_536
"""More than replies that a store's front holds; each takes about 250 bytes."""


class KeyMemo:
    """The keys of the latest requests of one judge whose answers are in memory.

    To make a request, only to find its answer in memory, takes longer than all the rest. So whoever
    asks the same again finds the key by a hash of the texts, and makes no request.
    """

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._keys: OrderedDict[bytes, str] = OrderedDict()

    def key(self, mark: bytes) -> str | None:
        """The key of the request that was made of such texts, or None."""
        return self._keys.get(mark)

    def keep(self, mark: bytes, key: str) -> None:
        """Remember `key`; forget the oldest one where there are too many."""
        self._keys[mark] = key
        if len(self._keys) > self._kept:
            self._keys.popitem(last=False)


def mark_of(texts: Mapping[str, str], question: int, vote: int) -> bytes:
    """A hash of what makes one request of a judge different from another.

    >>> mark_of({"a": "x", "b": ""}, 0, 0) == mark_of({"a": "", "b": "x"}, 0, 0)
    False
    """
    try:
        said = msgspec.msgpack.encode((question, vote, *texts.values()))
    except UnicodeEncodeError:  # half a surrogate pair, which a request replaces
        said = repr((question, vote, *texts.values())).encode()
    return sha256(said).digest()
