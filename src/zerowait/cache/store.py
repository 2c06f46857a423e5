"""The interface of a cache of judged replies, and the entries that it keeps."""

from __future__ import annotations

from typing import Protocol

import msgspec

from zerowait.errors import ZerowaitError


class StoreError(ZerowaitError):
    """The cache could not read or keep a reply: the disk is full, the file locked or damaged."""


class StoreAwayError(StoreError):
    """The cache does not answer and is not used; an event was sent when that began."""


class Entry(msgspec.Struct, frozen=True):
    """A judge's reply that gave a verdict.

    Args:
        reply: the raw body, so that another parser can read it again without asking.
        verdict: what the parser of that day made of it, encoded.
        judge: the judge's name in the configuration.
        model: the model that the server says it served.
        fingerprint: the server's ``system_fingerprint``, or empty.
        created: Unix time in seconds.
    """

    reply: bytes
    verdict: bytes
    judge: str
    model: str
    fingerprint: str
    created: float


def storable(entry: Entry) -> Entry:
    """`entry` without halves of surrogate pairs in its names, which a server's JSON can hold."""
    if (entry.judge + entry.model + entry.fingerprint).isascii():
        return entry
    names = {name: getattr(entry, name) for name in ("judge", "model", "fingerprint")}
    whole = {name: text.encode("utf-8", "replace").decode() for name, text in names.items()}
    return msgspec.structs.replace(entry, **whole)


class StoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """A store at one moment.

    Args:
        entries: replies kept.
        size_bytes: on disk, or in memory for a store that lives there.
        hits: answered gets since it was opened.
        misses: gets since then that found nothing.
        puts: replies kept since then.
        evicted: entries dropped since then to keep within the limits.
    """

    entries: int
    size_bytes: int
    hits: int
    misses: int
    puts: int
    evicted: int = 0


class Store(Protocol):
    """Keeps judged replies by the key of their request."""

    def peek(self, key: str) -> Entry | None:
        """The entry if it is in memory; None if it is not there, which says nothing of the disk."""
        ...

    async def get(self, key: str) -> Entry | None:
        """The entry, or None if there is none.

        Raises:
            StoreError: it cannot be read.
        """
        ...

    async def claim(self, key: str, *, wait_s: float) -> Entry | None:
        """The entry; or None: then the caller asks the judge and calls `put` or `release`.

        Where another process has claimed the same key, this waits for its entry, its release or
        its end. A store without claims, and every store after `wait_s`, returns None at once.

        Raises:
            StoreError: it cannot be read.
        """
        ...

    def release(self, key: str) -> None:
        """Release the claim on `key`, if there is one; a `put` has released it already."""
        ...

    async def put(self, key: str, entry: Entry) -> None:
        """Keep `entry`; returns when a killed process would find it again.

        An entry that is there is replaced.

        Raises:
            StoreError: it was not kept.
        """
        ...

    async def stats(self) -> StoreStats:
        """Counts and size."""
        ...

    async def aclose(self) -> None:
        """Finish the calls at hand, then close. Idempotent."""
        ...
