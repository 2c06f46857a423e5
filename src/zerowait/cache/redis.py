"""Judged replies in Redis, for jobs on several machines that share one cache.

What gathers while one round trip is under way leaves together with the next, so that hundreds of
waiting gets are one MGET and hundreds of puts one pipeline. A Redis that does not answer is left
alone until it does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from zerowait.cache.absence import PAUSE_S, Absence
from zerowait.cache.limits import Limits
from zerowait.cache.redis_client import connected, reason, without_password
from zerowait.cache.served import Served
from zerowait.cache.store import Entry, StoreAwayError, StoreError, StoreStats, storable
from zerowait.errors import ClosedError, ConfigError
from zerowait.events import Listener, nobody

PREFIX: Final = "zerowait:1:"
"""Before every key; the number is that of the values' form."""

_TIMEOUT_S: Final = 5.0
_LARGEST_BATCH: Final = 512
_SHORTEST_MS: Final = 1
_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(Entry).decode

_Order: TypeAlias = tuple[Any, "asyncio.Future[Any]"]
"""Something to do, and what its caller waits for."""


class RedisStore:
    """A `Store` in the Redis at `url`, shared with other processes and machines; used on one loop.

    A put returns when Redis has it. Whether a Redis that is killed still has it is a matter of
    Redis's own persistence (``appendonly``).

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``, with a password if need be.
        limits: entries get the rest of `max_age_s` as their time to live; how much memory there is
            and what goes first is Redis's own setting.
        timeout_s: of a round trip.
        pause_s: before a Redis that did not answer is asked for a sign of life.
        listener: told once when Redis does not answer, and when it does again.
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
        pause_s: float = PAUSE_S,
        listener: Listener = nobody,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = without_password(url)
        self._limits = limits
        self._wall = wall
        self._served = Served(limits, wall=wall)
        self._gets: list[_Order] = []
        self._sets: list[_Order] = []
        self._worker: asyncio.Task[None] | None = None
        self._closed = False
        self._client, self._errors, self._silences = connected(url, timeout_s)
        self._absence = Absence(self._answers, listener=listener, pause_s=pause_s)

    def __repr__(self) -> str:
        return f"RedisStore({self.name!r})"

    async def ping(self) -> None:
        """Nothing, when Redis answers.

        Raises:
            ConfigError: it does not.
        """
        try:
            await self._client.ping()
        except self._errors as error:
            raise ConfigError(
                f"the cache {self.name} does not answer ({reason(error)}): see whether Redis runs "
                "there and lets you in, or set cache: {path: FILE} or cache: off"
            ) from None

    def peek(self, key: str) -> Entry | None:  # noqa: ARG002 - the port's signature
        """None: every entry is elsewhere."""
        return None

    async def get(self, key: str) -> Entry | None:
        """The entry, or None.

        Raises:
            StoreError: Redis has something else there.
            StoreAwayError: it does not answer, or did not a moment ago.
            ClosedError: the store was closed.
        """
        value = await self._result(self._gets, PREFIX + key)
        return self._served.found(None if value is None else self._decoded(key, value))

    async def claim(self, key: str, *, wait_s: float) -> Entry | None:  # noqa: ARG002
        """As `get`: processes that ask the same at the same time each ask."""
        return await self.get(key)

    def release(self, key: str) -> None:
        """Nothing is claimed."""

    async def put(self, key: str, entry: Entry) -> None:
        """Keep `entry`; returns when Redis has it.

        Raises:
            StoreError: it was not kept.
            StoreAwayError: likewise, because Redis does not answer, or did not a moment ago.
            ClosedError: the store was closed.
        """
        value = _ENCODE(storable(entry))
        await self._result(self._sets, (PREFIX + key, value, self._lives_ms(entry)))
        self._served.puts += 1

    async def stats(self) -> StoreStats:
        """Counts; looks at every key, and the size is that of all that Redis holds.

        Raises:
            StoreError: Redis does not answer.
        """
        if self._absence:
            raise self._away()
        entries = 0
        try:
            async for _ in self._client.scan_iter(match=f"{PREFIX}*", count=1000):
                entries += 1
            memory = await self._client.info("memory")
        except self._errors as error:
            raise self._failure(error) from error
        return self._served.stats(entries=entries, size_bytes=int(memory["used_memory"]))

    async def aclose(self) -> None:
        """Carry out what was ordered, then close the connections. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._worker is not None:
                await self._worker
            await self._absence.aclose()
        finally:
            await self._client.aclose()

    async def _answers(self) -> bool:
        """Whether Redis gives a sign of life."""
        try:
            await self._client.ping()
        except self._errors:
            return False
        return True

    def _lives_ms(self, entry: Entry) -> int | None:
        if self._limits.max_age_s is None:
            return None
        left_s = entry.created + self._limits.max_age_s - self._wall()
        return max(_SHORTEST_MS, int(left_s * 1000))

    async def _result(self, orders: list[_Order], what: Any) -> Any:
        if self._closed:
            raise ClosedError(f"the cache {self.name} was closed")
        if self._absence:
            raise self._away()
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        orders.append((what, done))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work())
        return await done

    async def _work(self) -> None:
        """Reads first: nobody waits behind a write for what is there already."""
        while self._gets or self._sets:
            gets, self._gets[:_LARGEST_BATCH] = self._gets[:_LARGEST_BATCH], []
            sets, self._sets[:_LARGEST_BATCH] = self._sets[:_LARGEST_BATCH], []
            await self._carry_out(self._read, gets)
            await self._carry_out(self._write, sets)

    async def _carry_out(
        self, act: Callable[[Sequence[Any]], Awaitable[Sequence[Any]]], orders: Sequence[_Order]
    ) -> None:
        """Each caller hears what came of its order."""
        if not orders:
            return
        results = await self._results(act, [what for what, _ in orders])
        for (_, done), result in zip(orders, results, strict=True):
            if done.done():  # its caller was cancelled
                continue
            if isinstance(result, Exception):
                done.set_exception(self._failure(result))
            else:
                done.set_result(result)

    async def _results(
        self, act: Callable[[Sequence[Any]], Awaitable[Sequence[Any]]], orders: Sequence[Any]
    ) -> Sequence[Any]:
        """Each order's result, or the exception that it met."""
        if self._absence:
            return [self._away()] * len(orders)
        try:
            results = await act(orders)
        except Exception as error:  # noqa: BLE001 - whoever waits must hear it
            if isinstance(error, self._silences):
                self._absence.begin(str(self._failure(error)))
            return [error] * len(orders)
        self._absence.answered()
        return results

    async def _read(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        values: list[bytes | None] = await self._client.mget(keys)
        return values

    async def _write(self, entries: Sequence[tuple[str, bytes, int | None]]) -> Sequence[Any]:
        """Nothing that matters for each, or its error: a full Redis refuses one by one."""
        pipeline = self._client.pipeline(transaction=False)
        for key, value, lives_ms in entries:
            pipeline.set(key, value, px=lives_ms)
        results: list[Any] = await pipeline.execute(raise_on_error=False)
        return results

    def _failure(self, error: Exception) -> StoreError:
        """What a caller is told."""
        if isinstance(error, StoreAwayError):
            return self._away()
        kind = StoreAwayError if isinstance(error, self._silences) else StoreError
        return kind(f"the cache {self.name} failed ({reason(error)})")

    def _away(self) -> StoreAwayError:
        return StoreAwayError(f"the cache {self.name} does not answer and is left alone for now")

    def _decoded(self, key: str, value: bytes) -> Entry:
        try:
            return _DECODE(value)
        except (msgspec.MsgspecError, ValueError):
            raise StoreError(
                f"the cache {self.name} has no entry of ours at {PREFIX}{key}"
            ) from None
