"""A cache in several files, each owned by one process, and the files of earlier layouts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from zerowait.cache.limits import CacheLimits
from zerowait.cache.sqlite import SqliteStore
from zerowait.cache.store import Entry, Store, StoreStats

_DIGITS: Final = 8


class Shard(msgspec.Struct, frozen=True, order=True):
    """One part of everything that is known by a key.

    Args:
        index: which one, from 0.
        of: how many there are.
    """

    index: int = 0
    of: int = 1

    def owner(self, key: str) -> int:
        """The index of the shard to which the hexadecimal `key` belongs.

        >>> Shard(of=4).owner("0000000fe1"), Shard(of=1).owner("0000000fe1")
        (3, 0)
        """
        return int(key[:_DIGITS], 16) % self.of

    def file(self, path: Path) -> Path:
        """The shard's own file, for a cache at `path`; that path itself where nothing is divided.

        >>> Shard(1, 4).file(Path("judgements.db")).name
        'judgements-1-of-4.db'
        """
        if self.of == 1:
            return path
        return path.with_name(f"{path.stem}-{self.index}-of-{self.of}{path.suffix}")


def shard_files(path: Path) -> list[tuple[Shard, Path]]:
    """Every file of the cache at `path` that exists, of any layout, the undivided one first."""
    name = re.compile(rf"{re.escape(path.stem)}-(\d+)-of-(\d+){re.escape(path.suffix)}")
    found = [(Shard(), path)] if path.exists() else []
    beside = path.parent.iterdir() if path.parent.is_dir() else ()
    matches = [(match, file) for file in beside if (match := name.fullmatch(file.name))]
    parts = [(Shard(int(match[1]), int(match[2])), file) for match, file in matches]
    return found + sorted(part for part in parts if part[0].of > 1)


class Layered:
    """A store before others that are read and never written.

    Args:
        own: where entries are kept; closed with this, as are the others.
        older: the files of other layouts, by their shard.
    """

    def __init__(self, own: Store, older: Sequence[tuple[Shard, Store]]) -> None:
        self._own = own
        self._older = older

    def peek(self, key: str) -> Entry | None:
        """The entry if the own store has it at hand."""
        return self._own.peek(key)

    async def get(self, key: str) -> Entry | None:
        """The entry from the own store, else from the one file of each layout that may hold it."""
        entry = await self._own.get(key)
        return await self._from_older(key) if entry is None else entry

    async def claim(self, key: str, *, wait_s: float) -> Entry | None:
        """Likewise; a key that an older file has is not claimed."""
        entry = await self._own.claim(key, wait_s=wait_s)
        if entry is not None:
            return entry
        try:
            entry = await self._from_older(key)
        except BaseException:
            self._own.release(key)
            raise
        if entry is not None:
            self._own.release(key)
        return entry

    def release(self, key: str) -> None:
        """Release the claim of the own store."""
        self._own.release(key)

    async def _from_older(self, key: str) -> Entry | None:
        for shard, store in self._older:
            if shard.owner(key) == shard.index:
                entry = await store.get(key)
                if entry is not None:
                    return entry
        return None

    async def put(self, key: str, entry: Entry) -> None:
        """Keep `entry` in the own store."""
        await self._own.put(key, entry)

    async def stats(self) -> StoreStats:
        """Those of the own store."""
        return await self._own.stats()

    async def aclose(self) -> None:
        """Close all of them. Idempotent."""
        await self._own.aclose()
        for _, store in self._older:
            await store.aclose()


def open_files(path: str, shard: Shard, limits: CacheLimits) -> Store:
    """The store of `shard`, with what earlier runs kept in another number of files.

    Each shard gets an equal part of ``max_bytes``.

    Args:
        path: of the cache.
        shard: to open.
        limits: of the whole cache.

    Raises:
        ConfigError: see `SqliteStore`.
    """
    place = Path(path).expanduser()
    older = [part for part in shard_files(place) if part[0].of != shard.of]
    max_bytes = None if limits.max_bytes is None else limits.max_bytes // shard.of
    mine = CacheLimits(max_bytes=max_bytes, max_age_s=limits.max_age_s)
    own = SqliteStore(shard.file(place), limits=mine)
    if not older:
        return own
    aged = CacheLimits(max_age_s=limits.max_age_s)
    return Layered(own, [(part, SqliteStore(file, limits=aged)) for part, file in older])
