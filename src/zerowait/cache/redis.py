"""Judged replies in Redis, for jobs on several machines that share one cache.

What gathers while one round trip is under way leaves together with the next, so that hundreds of
waiting gets are one MGET and hundreds of puts one pipeline.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from zerowait.cache.limits import Limits
from zerowait.cache.store import Entry, StoreError, StoreStats
from zerowait.errors import ClosedError, ConfigError, MissingExtraError

PREFIX: Final = "zerowait:1:"
"""Before every key; the number is that of the values' form."""

_TIMEOUT_S: Final = 5.0
_LARGEST_BATCH: Final = 512
_SHORTEST_MS: Final = 1
_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(Entry).decode


class RedisStore:
    """A `Store` in the Redis at `url`, shared with other processes and machines; used on one loop.

    A put returns when Redis has it. Whether a Redis that is killed still has it is a matter of
    Redis's own persistence (``appendonly``).

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``, with a password if need be.
        limits: entries get the rest of `max_age_s` as their time to live; how much memory there is
            and what goes first is Redis's own setting.
        timeout_s: of a round trip.
        wall: Unix time in seconds.

    Raises:
        MissingExtraError: redis-py is not installed.
        ConfigError: the URL cannot be read.
    """

    def __init__(
        self,
        url: str,
        *,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        timeout_s: float = _TIMEOUT_S,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = without_password(url)
        self._limits = limits
        self._wall = wall
        self._hits = self._misses = self._puts = 0
        self._gets: list[tuple[str, asyncio.Future[bytes | None]]] = []
        self._sets: list[tuple[str, bytes, int | None, asyncio.Future[None]]] = []
        self._worker: asyncio.Task[None] | None = None
        self._closed = False
        self._client, self._caught = _connect(url, self.name, timeout_s)

    def __repr__(self) -> str:
        return f"RedisStore({self.name!r})"

    async def ping(self) -> None:
        """Nothing, when Redis answers.

        Raises:
            ConfigError: it does not.
        """
        try:
            await self._client.ping()
        except self._caught as error:
            raise ConfigError(
                f"the cache {self.name} does not answer ({_reason(error)}): see whether Redis runs "
                "there and lets you in, or set cache: {path: FILE} or cache: off"
            ) from None

    def peek(self, key: str) -> Entry | None:  # noqa: ARG002 - the port's signature
        """None: every entry is elsewhere."""
        return None

    async def get(self, key: str) -> Entry | None:
        """The entry, or None.

        Raises:
            StoreError: Redis does not answer, or has something else there.
            ClosedError: the store was closed.
        """
        self._check_open()
        found: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._gets.append((PREFIX + key, found))
        self._wake()
        value = await found
        entry = None if value is None else self._decoded(key, value)
        if entry is not None and self._limits.expired(entry.created, self._wall()):
            entry = None
        if entry is None:
            self._misses += 1
        else:
            self._hits += 1
        return entry

    async def put(self, key: str, entry: Entry) -> None:
        """Keep `entry`; returns when Redis has it.

        Raises:
            StoreError: it was not kept.
            ClosedError: the store was closed.
        """
        self._check_open()
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sets.append((PREFIX + key, _encoded(entry), self._lives_ms(entry), kept))
        self._wake()
        await kept
        self._puts += 1

    async def stats(self) -> StoreStats:
        """Counts; looks at every key, and the size is that of all that Redis holds.

        Raises:
            StoreError: Redis does not answer.
        """
        self._check_open()
        entries = 0
        try:
            async for _ in self._client.scan_iter(match=f"{PREFIX}*", count=1000):
                entries += 1
            memory = await self._client.info("memory")
        except self._caught as error:
            raise self._failure(error) from error
        return StoreStats(
            entries=entries,
            size_bytes=int(memory["used_memory"]),
            hits=self._hits,
            misses=self._misses,
            puts=self._puts,
        )

    async def aclose(self) -> None:
        """Carry out what was ordered, then close the connections. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._worker is not None:
                await self._worker
        finally:
            await self._client.aclose()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the cache {self.name} was closed")

    def _lives_ms(self, entry: Entry) -> int | None:
        if self._limits.max_age_s is None:
            return None
        left_s = entry.created + self._limits.max_age_s - self._wall()
        return max(_SHORTEST_MS, int(left_s * 1000))

    def _wake(self) -> None:
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        """Reads first: nobody waits behind a write for what is there already."""
        while self._gets or self._sets:
            gets, self._gets = self._gets[:_LARGEST_BATCH], self._gets[_LARGEST_BATCH:]
            sets, self._sets = self._sets[:_LARGEST_BATCH], self._sets[_LARGEST_BATCH:]
            if gets:
                await self._read(gets)
            if sets:
                await self._write(sets)

    async def _read(self, gets: Sequence[tuple[str, asyncio.Future[bytes | None]]]) -> None:
        try:
            values = await self._client.mget([key for key, _ in gets])
        except Exception as error:  # noqa: BLE001 - whoever waits must hear it
            self._fail([found for _, found in gets], error)
            return
        for (_, found), value in zip(gets, values, strict=True):
            if not found.done():
                found.set_result(value)

    async def _write(
        self, sets: Sequence[tuple[str, bytes, int | None, asyncio.Future[None]]]
    ) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for key, value, lives_ms, _ in sets:
            pipeline.set(key, value, px=lives_ms)
        try:
            results = await pipeline.execute(raise_on_error=False)
        except Exception as error:  # noqa: BLE001 - whoever waits must hear it
            self._fail([kept for *_, kept in sets], error)
            return
        for (*_, kept), result in zip(sets, results, strict=True):
            if isinstance(result, Exception):  # a full Redis refuses one by one
                self._fail([kept], result)
            elif not kept.done():
                kept.set_result(None)

    def _fail(self, waiting: Sequence[asyncio.Future[Any]], error: Exception) -> None:
        for one in waiting:
            if not one.done():
                one.set_exception(self._failure(error))

    def _failure(self, error: Exception) -> StoreError:
        return StoreError(f"the cache {self.name} failed ({_reason(error)})")

    def _decoded(self, key: str, value: bytes) -> Entry:
        try:
            return _DECODE(value)
        except (msgspec.MsgspecError, ValueError):
            raise StoreError(
                f"the cache {self.name} has no entry of ours at {PREFIX}{key}"
            ) from None


def without_password(url: str) -> str:
    """The URL as it may be shown.

    >>> without_password("redis://me:secret@cache.example:6379/0?password=x")
    'redis://cache.example:6379/0'
    >>> without_password("redis://:se/cr?et@cache.example/0")
    'redis://<hidden>'
    """
    scheme, _, rest = url.partition("://")
    before, mark, query = rest.partition("?")
    if mark and "@" in query:  # the mark may be a part of the password
        return f"{scheme}://<hidden>"
    return f"{scheme}://{before.rpartition('@')[2]}"


def _connect(url: str, name: str, timeout_s: float) -> tuple[Any, tuple[type[Exception], ...]]:
    """A client, which connects when it is used, and the errors it may raise."""
    try:
        redis: Any = importlib.import_module("redis.asyncio")
        errors: Any = importlib.import_module("redis.exceptions")
        retry: Any = importlib.import_module("redis.asyncio.retry")
        backoff: Any = importlib.import_module("redis.backoff")
    except ImportError:
        raise MissingExtraError("cache.url", extra="redis") from None
    client = None
    # its errors quote the URL, and with it the password
    with suppress(ValueError):
        client = redis.Redis.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            # once more, at once: Redis may have closed an idle connection
            retry=retry.Retry(backoff.NoBackoff(), 1),
            retry_on_error=[errors.ConnectionError],
        )
    if client is None:
        raise ConfigError(f"cache.url {name}: is no URL of a Redis")
    return client, (errors.RedisError, OSError, TimeoutError)


def _encoded(entry: Entry) -> bytes:
    try:
        return _ENCODE(entry)
    except UnicodeEncodeError:  # halves of surrogate pairs, which a server's JSON can hold
        names = {
            name: getattr(entry, name).encode("utf-8", "replace").decode()
            for name in ("judge", "model", "fingerprint")
        }
        return _ENCODE(msgspec.structs.replace(entry, **names))


def _reason(error: BaseException) -> str:
    """What happened, in the system's words where it has some; never a URL."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
