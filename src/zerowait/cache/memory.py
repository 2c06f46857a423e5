"""Stores in memory: a whole one, one that keeps nothing, and memory before another store."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from zerowait.cache.limits import CacheLimits
from zerowait.cache.store import Entry, Store, StoreStats

_OVERHEAD_BYTES: Final = 500
DEFAULT_CAPACITY_BYTES: Final = 64 * 2**20


class MemoryStore:
    """A least-recently-used cache of `capacity_bytes`; gone when the process ends."""

    def __init__(self, capacity_bytes: int = DEFAULT_CAPACITY_BYTES) -> None:
        self._capacity_bytes = capacity_bytes
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._size_bytes = 0
        self._hits = self._misses = self._puts = 0

    def peek(self, key: str) -> Entry | None:
        """The entry, which then counts as used last, or None."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
            self._hits += 1
        return entry

    def keep(self, key: str, entry: Entry) -> None:
        """Keep `entry`, and drop the least recently used entries until all fit."""
        replaced = self._entries.pop(key, None)
        if replaced is not None:
            self._size_bytes -= _size_bytes(replaced)
        self._entries[key] = entry
        self._size_bytes += _size_bytes(entry)
        self._puts += 1
        while self._size_bytes > self._capacity_bytes:
            _, dropped = self._entries.popitem(last=False)
            self._size_bytes -= _size_bytes(dropped)

    async def get(self, key: str) -> Entry | None:
        """The entry, or None."""
        entry = self.peek(key)
        self._misses += entry is None
        return entry

    async def claim(self, key: str, *, wait_s: float) -> Entry | None:  # noqa: ARG002
        """As `get`: no other process has this memory."""
        return await self.get(key)

    def release(self, key: str) -> None:
        """Does nothing: no key is claimed."""

    async def put(self, key: str, entry: Entry) -> None:
        """Keep `entry` for as long as the process lives and the capacity allows."""
        self.keep(key, entry)

    async def stats(self) -> StoreStats:
        """Counts and size."""
        return StoreStats(
            entries=len(self._entries),
            size_bytes=self._size_bytes,
            hits=self._hits,
            misses=self._misses,
            puts=self._puts,
        )

    async def aclose(self) -> None:
        """Forget everything. Idempotent."""
        self._entries.clear()
        self._size_bytes = 0


class NoStore:
    """Keeps nothing: what ``cache: off`` means."""

    def peek(self, key: str) -> Entry | None:  # noqa: ARG002 - the port's signature
        """None."""
        return None

    async def get(self, key: str) -> Entry | None:  # noqa: ARG002
        """None."""
        return None

    async def claim(self, key: str, *, wait_s: float) -> Entry | None:  # noqa: ARG002
        """None."""
        return None

    def release(self, key: str) -> None:
        """Does nothing: no key is claimed."""

    async def put(self, key: str, entry: Entry) -> None:
        """Nothing is kept."""

    async def stats(self) -> StoreStats:
        """Zeros."""
        return StoreStats(entries=0, size_bytes=0, hits=0, misses=0, puts=0)

    async def aclose(self) -> None:
        """Nothing to close."""


class MemoryCached:
    """A store with its latest entries in memory, where `peek` finds them without waiting.

    Args:
        back: keeps all entries; closed with this.
        capacity_bytes: how much memory may be used.
        limits: those of `back`, so that memory does not serve what is too old there.
        wall: Unix time in seconds.
    """

    def __init__(
        self,
        back: Store,
        *,
        capacity_bytes: int = DEFAULT_CAPACITY_BYTES,
        limits: CacheLimits = CacheLimits(),  # noqa: B008 - frozen
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._back = back
        self._limits = limits
        self._wall = wall
        self._has_age = limits.max_age_s is not None
        self._front = MemoryStore(capacity_bytes)
        self._peeked = 0

    def peek(self, key: str) -> Entry | None:
        """The entry if it is in memory, and not too old."""
        entry = self._front.peek(key)
        if entry is None:
            return None
        if self._has_age and self._limits.expired(entry.created, self._wall()):
            return None
        self._peeked += 1
        return entry

    async def get(self, key: str) -> Entry | None:
        """The entry from memory, else from the store behind."""
        entry = self.peek(key)
        if entry is not None:
            return entry
        entry = await self._back.get(key)
        if entry is not None:
            self._front.keep(key, entry)
        return entry

    async def claim(self, key: str, *, wait_s: float) -> Entry | None:
        """The entry from memory, else what the store behind says."""
        entry = self.peek(key)
        if entry is not None:
            return entry
        entry = await self._back.claim(key, wait_s=wait_s)
        if entry is not None:
            self._front.keep(key, entry)
        return entry

    def release(self, key: str) -> None:
        """Release the claim of the store behind."""
        self._back.release(key)

    async def put(self, key: str, entry: Entry) -> None:
        """Keep `entry`; it is in memory once the store behind has kept it."""
        await self._back.put(key, entry)
        self._front.keep(key, entry)

    async def stats(self) -> StoreStats:
        """The counts of the store behind, with the hits that never got there."""
        behind = await self._back.stats()
        return StoreStats(
            entries=behind.entries,
            size_bytes=behind.size_bytes,
            hits=behind.hits + self._peeked,
            misses=behind.misses,
            puts=behind.puts,
            evicted=behind.evicted,
        )

    async def aclose(self) -> None:
        """Close both."""
        await self._front.aclose()
        await self._back.aclose()


def _size_bytes(entry: Entry) -> int:
    return len(entry.reply) + len(entry.verdict) + _OVERHEAD_BYTES
