"""The store that a configuration asks for."""

from __future__ import annotations

from typing import Final

from zerowait.cache.limits import CacheLimits
from zerowait.cache.memory import MemoryCached, NoStore
from zerowait.cache.redis import RedisStore
from zerowait.cache.shards import Shard, open_files
from zerowait.cache.store import Store
from zerowait.config.schema import Cache
from zerowait.events import Listener, ignore_event

_DAY_S: Final = 86_400


async def open_store(
    cache: Cache,
    shard: Shard = Shard(),  # noqa: B008 - frozen
    *,
    listener: Listener = ignore_event,
) -> Store:
    """The store of `cache`, with its hot entries in memory; or one that keeps nothing.

    Args:
        cache: where, and how much.
        shard: which part of it is opened; a Redis is shared by all.
        listener: receives an event when a Redis stops answering, and when it answers again.

    Raises:
        ConfigError: the file cannot be opened or is not a cache of ours, or Redis does not answer.
        MissingExtraError: the cache is in Redis, and redis-py is not installed.
    """
    limits = limits_of(cache)
    if cache.url is not None:
        return MemoryCached(await _open_redis(cache.url, limits, listener), limits=limits)
    if cache.path is None:
        return NoStore()
    store = open_files(cache.path, shard, limits)
    return MemoryCached(store, limits=limits)


async def _open_redis(url: str, limits: CacheLimits, listener: Listener) -> RedisStore:
    store = RedisStore(url, limits=limits, listener=listener)
    try:
        await store.ping()
    except BaseException:
        await store.aclose()
        raise
    return store


def limits_of(cache: Cache) -> CacheLimits:
    """How much `cache` may hold, and for how long."""
    days = cache.max_age_days
    return CacheLimits(max_bytes=cache.max_bytes, max_age_s=None if days is None else days * _DAY_S)
