"""Counters of a store."""

from __future__ import annotations

from collections.abc import Callable

from zerowait.cache.limits import CacheLimits
from zerowait.cache.store import Entry, StoreStats


class StoreCounters:
    """Counts what a store found and kept; an entry that is too old counts as not found.

    Args:
        limits: see `CacheLimits`.
        wall: Unix time in seconds.
    """

    def __init__(self, limits: CacheLimits, *, wall: Callable[[], float]) -> None:
        self._limits = limits
        self._wall = wall
        self._hits = 0
        self.misses = 0
        self.puts = 0

    def found(self, entry: Entry | None) -> Entry | None:
        """The entry, unless there is none or it is too old."""
        if entry is None or self._limits.expired(entry.created, self._wall()):
            self.misses += 1
            return None
        self._hits += 1
        return entry

    def stats(self, *, entries: int, size_bytes: int, evicted: int = 0) -> StoreStats:
        """The counts, with what the store itself knows."""
        return StoreStats(
            entries=entries,
            size_bytes=size_bytes,
            hits=self._hits,
            misses=self.misses,
            puts=self.puts,
            evicted=evicted,
        )
