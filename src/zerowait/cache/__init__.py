"""Judged replies: one call per question, and none for a question that was answered before."""

from zerowait.cache.latencies import LatencyFile, latency_file
from zerowait.cache.ledger import SqliteLedger
from zerowait.cache.limits import CacheLimits
from zerowait.cache.memory import MemoryCached, MemoryStore, NoStore
from zerowait.cache.open import open_store
from zerowait.cache.redis import RedisStore
from zerowait.cache.shards import Shard, shard_files
from zerowait.cache.single_flight import Sent, SingleFlight
from zerowait.cache.sqlite import SqliteStore
from zerowait.cache.store import Entry, Store, StoreAwayError, StoreError, StoreStats

__all__ = [
    "CacheLimits",
    "Entry",
    "LatencyFile",
    "MemoryCached",
    "MemoryStore",
    "NoStore",
    "RedisStore",
    "Sent",
    "Shard",
    "SingleFlight",
    "SqliteLedger",
    "SqliteStore",
    "Store",
    "StoreAwayError",
    "StoreError",
    "StoreStats",
    "latency_file",
    "open_store",
    "shard_files",
]
