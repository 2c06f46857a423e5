"""The store that a configuration asks for."""

from __future__ import annotations

from zerowait.cache.memory import Fronted, NoStore
from zerowait.cache.sqlite import SqliteStore
from zerowait.cache.store import Store
from zerowait.config.schema import Cache


async def open_store(cache: Cache) -> Store:
    """The store of `cache`: an SQLite file with its hot entries in memory, or one without memory.

    Raises:
        ConfigError: the file cannot be opened or is not a cache of ours.
    """
    if cache.path is None:
        return NoStore()
    return Fronted(SqliteStore(cache.path))
