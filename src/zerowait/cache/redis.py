"""Judged replies in Redis, for jobs on several machines that share one cache.

Calls that come during one round trip leave together with the next, so that hundreds of waiting
gets are one MGET and hundreds of puts one pipeline. A circuit breaker keeps calls from a Redis that
does not answer.

A process that asks the judge holds a lock on the key (``SET NX PX``), so that other machines wait
for its reply. The lock is a lease: it is renewed while the judge is asked, and it expires when the
process dies. A process on the same machine, such as the hub that Ray starts in the place of a
killed one, sees that its owner is dead and removes it at once.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from zerowait.cache.counters import StoreCounters
from zerowait.cache.limits import CacheLimits
from zerowait.cache.store import Entry, StoreAwayError, StoreError, StoreStats, storable
from zerowait.errors import ClosedError, ConfigError, MissingExtraError
from zerowait.events import Listener, StoreFailed, StoreReturned, ignore_event

PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


class RedisBreaker:
    """The circuit breaker of a Redis server: open from the first call that gets no answer.

    While it is open no call waits for the server; it is probed in the background, and the breaker
    closes once a probe is answered. A server that answers probes and nothing else is probed less
    and less often. It belongs to one event loop.

    Args:
        probe: whether the server answers a ping.
        listener: receives `StoreFailed` when it opens, and `StoreReturned` when it closes.
        pause_s: seconds before each probe.
    """

    def __init__(
        self, probe: Callable[[], Awaitable[bool]], *, listener: Listener, pause_s: float = PAUSE_S
    ) -> None:
        self._probe = probe
        self._listener = listener
        self._first_pause_s = self._pause_s = pause_s
        self._probing: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the server is not used now."""
        return self._probing is not None

    def open(self, why: str) -> None:
        """A call got no answer: open the breaker, and close it once a probe is answered."""
        if self._probing is None:
            self._probing = asyncio.get_running_loop().create_task(self._until_answered())
            self._listener(StoreFailed(why=f"{why}: it is not used until it answers again"))

    def answered(self) -> None:
        """The server answered a call."""
        self._pause_s = self._first_pause_s

    async def aclose(self) -> None:
        """Stop probing. Idempotent."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait({self._probing})

    async def _until_answered(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s)
            if await self._probe():
                break
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._probing = None
        self._listener(StoreReturned())


class Connected(NamedTuple):
    """A client, which connects when it is used.

    Args:
        client: of redis-py.
        errors: that it may raise.
        silences: those of `errors` that mean that Redis did not answer.
    """

    client: Any
    errors: tuple[type[Exception], ...]
    silences: tuple[type[Exception], ...]


def connected_redis(url: str, timeout_s: float) -> Connected:
    """A client of the Redis at `url`; `timeout_s` is that of a round trip.

    Raises:
        MissingExtraError: redis-py is not installed.
        ConfigError: the URL cannot be read.
    """
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
            # once more, at once: Redis may have closed an idle connection; never after a timeout
            retry=retry.Retry(backoff.NoBackoff(), 1, (errors.ConnectionError,)),
        )
    if client is None:
        raise ConfigError(f"cache.url {without_password(url)}: is no URL of a Redis")
    silences = (errors.ConnectionError, errors.TimeoutError, OSError, TimeoutError)
    return Connected(client, (errors.RedisError, *silences), silences)


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


def reason(error: BaseException) -> str:
    """What happened, in the system's words where it has some; never a URL."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


PREFIX: Final = "zerowait:1:"
"""Before every key; the number is that of the values' form."""

CLAIM_PREFIX: Final = "zerowait:claim:"
"""Before the key of a lock; its value is the owner's token."""

_LEASE_ROUND_TRIPS: Final = 3
_POLL_S: Final = 0.1
"""Seconds between two looks for a reply that another process is waiting for."""

_POLLS_PER_OWNER: Final = 10
"""Looks for a reply, for each at whether the process that is waiting for it still runs."""

_IF_OURS: Final = "if redis.call('get', KEYS[1]) == ARGV[1] then return {} else return 0 end"
_RELEASE: Final = _IF_OURS.format("redis.call('del', KEYS[1])")
_RENEW: Final = _IF_OURS.format("redis.call('pexpire', KEYS[1], ARGV[2])")

_TIMEOUT_S: Final = 5.0
_LARGEST_BATCH: Final = 512
_SHORTEST_MS: Final = 1
_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(Entry).decode
_DECODE_OWNER: Final = msgspec.msgpack.Decoder(tuple[str, int, str, str]).decode

_Call: TypeAlias = tuple[Any, "asyncio.Future[Any]"]
"""A key or an entry, and the future of the result."""


class _Taken(Enum):
    """The result of a claim on a key that another process, or another call, has claimed."""

    TAKEN = "taken"


class _Owner(NamedTuple):
    """The process that holds a lock; `token` tells its stores apart.

    Args:
        machine: since it was started, and the namespace in which `pid` counts; empty where the
            system does not say.
        pid: its number, which may belong to another process by now.
        started: when it was started, on the system's clock.
    """

    machine: str
    pid: int
    started: str
    token: str

    @classmethod
    def of_this_process(cls) -> _Owner:
        """A new owner in this process."""
        token, pid = secrets.token_hex(8), os.getpid()
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            machine = f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
            return cls(machine, pid, _state_and_start(pid)[1], token)
        except OSError:
            return cls("", pid, "", token)

    @classmethod
    def read(cls, value: object) -> _Owner | None:
        """The owner in the value of a lock; None where another version of zerowait wrote it."""
        try:
            parts = _DECODE_OWNER(value) if isinstance(value, bytes) else None
        except msgspec.MsgspecError:
            return None
        return None if parts is None else cls(*parts)

    def is_dead(self, machine: str) -> bool:
        """Whether the process has ended, where it ran on this `machine` and that can be seen."""
        if not machine or self.machine != machine:
            return False
        try:
            os.kill(self.pid, 0)
            state, started = _state_and_start(self.pid)
        except ProcessLookupError:
            return True
        except OSError:  # another user's, say
            return False
        return state == "Z" or started != self.started


def _state_and_start(pid: int) -> tuple[str, str]:
    """A process's state, and when it was started, by ``/proc``."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return fields[0], fields[19]


class RedisStore:
    """A `Store` in the Redis at `url`, shared with other processes and machines; used on one loop.

    A put returns when Redis has it. Whether a Redis that is killed still has it is a matter of
    Redis's own persistence (``appendonly``).

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``, with a password if need be.
        limits: entries get the rest of `max_age_s` as their time to live; how much memory there is
            and what goes first is Redis's own setting.
        timeout_s: of a round trip; the claims of a process that was killed on another machine
            outlive it by three.
        pause_s: seconds before a Redis that did not answer is probed.
        listener: receives one event when Redis stops answering, and one when it answers again.
        wall: Unix time in seconds.

    Raises:
        MissingExtraError: redis-py is not installed.
        ConfigError: the URL cannot be read.
    """

    def __init__(
        self,
        url: str,
        *,
        limits: CacheLimits = CacheLimits(),  # noqa: B008 - frozen
        timeout_s: float = _TIMEOUT_S,
        pause_s: float = PAUSE_S,
        listener: Listener = ignore_event,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = without_password(url)
        self._limits = limits
        self._wall = wall
        self._served = StoreCounters(limits, wall=wall)
        self._lease_ms = int(_LEASE_ROUND_TRIPS * timeout_s * 1000)
        self._process = _Owner.of_this_process()
        self._owner = _ENCODE(self._process)
        self._claimed: set[str] = set()
        self._renewing: asyncio.Task[None] | None = None
        self._gets: list[_Call] = []
        self._claims: list[_Call] = []
        self._sets: list[_Call] = []
        self._renewals: list[_Call] = []
        self._releases: list[_Call] = []
        self._worker: asyncio.Task[None] | None = None
        self._closed = False
        self._client, self._errors, self._silences = connected_redis(url, timeout_s)
        self._breaker = RedisBreaker(self._answers, listener=listener, pause_s=pause_s)

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

    async def claim(self, key: str, *, wait_s: float) -> Entry | None:
        """The entry; or None, and then the caller has to ask the judge: see `Store.claim`.

        Raises:
            StoreError: Redis has something else there.
            StoreAwayError: it does not answer, or did not a moment ago.
            ClosedError: the store was closed.
        """
        clock = asyncio.get_running_loop().time
        give_up_s = clock() + wait_s
        try:
            value = await self._result(self._claims, key)
            looks = 0
            while value is _Taken.TAKEN and not self._closed and clock() < give_up_s:
                if looks % _POLLS_PER_OWNER == 0:
                    await self._void_if_dead(key)
                looks += 1
                await asyncio.sleep(_POLL_S)
                value = await self._result(self._claims, key)
        except asyncio.CancelledError:
            if key not in self._claimed:  # it may have been granted by now, and to this call
                self._claimed.add(key)
                self.release(key)
            raise
        if value is None:
            self._hold(key)
        is_entry = value is not None and value is not _Taken.TAKEN
        return self._served.found(self._decoded(key, value) if is_entry else None)

    def release(self, key: str) -> None:
        """Release the claim of this store on `key`; returns at once."""
        if key in self._claimed:
            self._claimed.discard(key)
            self._send(self._releases, (key, self._owner))

    async def _void_if_dead(self, key: str) -> None:
        """Remove the lock on `key` where the process that holds it has ended."""
        value = await self._result(self._gets, CLAIM_PREFIX + key)
        owner = _Owner.read(value)
        if owner is not None and owner.is_dead(self._process.machine):
            self._send(self._releases, (key, value))

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
        self.release(key)

    async def stats(self) -> StoreStats:
        """Counts; looks at every key, and the size is that of all that Redis holds.

        Raises:
            StoreError: Redis does not answer.
        """
        if self._breaker.is_open:
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
        """Finish the calls at hand, then close the connections. Idempotent."""
        if self._closed:
            return
        for key in tuple(self._claimed):
            self.release(key)
        self._closed = True
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})
        try:
            if self._worker is not None:
                await self._worker
            await self._breaker.aclose()
        finally:
            await self._client.aclose()

    async def _answers(self) -> bool:
        """Whether Redis answers a ping."""
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

    async def _result(self, calls: list[_Call], what: Any) -> Any:
        if self._closed:
            raise ClosedError(f"the cache {self.name} was closed")
        if self._breaker.is_open:
            raise self._away()
        return await self._enqueued(calls, what)

    def _send(self, calls: list[_Call], what: Any) -> None:
        """Make a call whose result no caller waits for; none to a Redis that does not answer."""
        if not self._closed and not self._breaker.is_open:
            self._enqueued(calls, what).add_done_callback(_ignore_failure)

    def _enqueued(self, calls: list[_Call], what: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        calls.append((what, done))
        if self._worker is None or self._worker.done():
            self._worker = loop.create_task(self._work())
        return done

    async def _work(self) -> None:
        """Make the calls in batches, reads first: they need not wait behind a write."""
        queues = (
            (self._read, self._gets),
            (self._claim, self._claims),
            (self._write, self._sets),
            (self._renew, self._renewals),
            (self._drop, self._releases),  # after the claims: a cancelled one is released
        )
        while any(calls for _, calls in queues):
            for act, calls in queues:
                batch, calls[:_LARGEST_BATCH] = calls[:_LARGEST_BATCH], []
                await self._run_batch(act, batch)

    async def _run_batch(
        self, act: Callable[[Sequence[Any]], Awaitable[Sequence[Any]]], calls: Sequence[_Call]
    ) -> None:
        """Make a batch of calls, and hand each caller its result or error."""
        if not calls:
            return
        results = await self._results(act, [what for what, _ in calls])
        for (_, done), result in zip(calls, results, strict=True):
            if done.done():  # its caller was cancelled
                continue
            if isinstance(result, Exception):
                done.set_exception(self._failure(result))
            else:
                done.set_result(result)

    async def _results(
        self, act: Callable[[Sequence[Any]], Awaitable[Sequence[Any]]], calls: Sequence[Any]
    ) -> Sequence[Any]:
        """Each call's result, or the exception that it raised."""
        if self._breaker.is_open:
            return [self._away()] * len(calls)
        try:
            results = await act(calls)
        except Exception as error:  # noqa: BLE001 - raised to the callers that wait
            if isinstance(error, self._silences):
                self._breaker.open(str(self._failure(error)))
            return [error] * len(calls)
        self._breaker.answered()
        return results

    async def _read(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        values: list[bytes | None] = await self._client.mget(keys)
        return values

    async def _claim(self, keys: Sequence[str]) -> Sequence[bytes | _Taken | None]:
        """The entries; None for a key that this store claims from now on; or that it is taken."""
        found = dict(zip(keys, await self._read([PREFIX + key for key in keys]), strict=True))
        missing = [key for key in keys if found[key] is None]
        if not missing:
            return [found[key] for key in keys]
        pipeline = self._client.pipeline(transaction=False)
        for key in missing:
            pipeline.set(CLAIM_PREFIX + key, self._owner, nx=True, px=self._lease_ms)
            pipeline.get(PREFIX + key)  # its owner may have stored it and released it just before
        answers: list[Any] = await pipeline.execute(raise_on_error=False)
        results: dict[str, list[bytes | _Taken | None]] = {key: [] for key in keys}
        for key, claimed, value in zip(missing, answers[::2], answers[1::2], strict=True):
            if isinstance(value, bytes):
                results[key].append(value)
                if claimed:
                    self._send(self._releases, (key, self._owner))
            else:  # a full Redis takes no claim, and then every process may ask
                results[key].append(None if claimed else _Taken.TAKEN)
        return [results[key].pop(0) if results[key] else found[key] for key in keys]

    async def _renew(self, keys: Sequence[str]) -> Sequence[Any]:
        claims = [(key, self._owner) for key in keys]
        return await self._for_claims(_RENEW, claims, self._lease_ms)

    async def _drop(self, claims: Sequence[tuple[str, bytes]]) -> Sequence[Any]:
        return await self._for_claims(_RELEASE, claims)

    async def _for_claims(
        self, script: str, claims: Sequence[tuple[str, bytes]], *given: int
    ) -> Sequence[Any]:
        """Run `script` for each key whose lock still has this value; one result for each."""
        pipeline = self._client.pipeline(transaction=False)
        for key, owner in claims:
            pipeline.eval(script, 1, CLAIM_PREFIX + key, owner, *given)
        results: list[Any] = await pipeline.execute(raise_on_error=False)
        return results

    def _hold(self, key: str) -> None:
        """Renew the lease on `key` until it is released."""
        self._claimed.add(key)
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.get_running_loop().create_task(self._renew_claims())

    async def _renew_claims(self) -> None:
        while self._claimed:
            await asyncio.sleep(self._lease_ms / 3000)
            for key in self._claimed:
                self._send(self._renewals, key)

    async def _write(self, entries: Sequence[tuple[str, bytes, int | None]]) -> Sequence[Any]:
        """One result for each entry, or its error: a full Redis refuses them one by one."""
        pipeline = self._client.pipeline(transaction=False)
        for key, value, lives_ms in entries:
            pipeline.set(key, value, px=lives_ms)
        results: list[Any] = await pipeline.execute(raise_on_error=False)
        return results

    def _failure(self, error: Exception) -> StoreError:
        """The error for a caller."""
        if isinstance(error, StoreAwayError):
            return self._away()
        kind = StoreAwayError if isinstance(error, self._silences) else StoreError
        return kind(f"the cache {self.name} failed ({reason(error)})")

    def _away(self) -> StoreAwayError:
        return StoreAwayError(f"the cache {self.name} does not answer and is not used for now")

    def _decoded(self, key: str, value: bytes) -> Entry:
        try:
            return _DECODE(value)
        except (msgspec.MsgspecError, ValueError):
            raise StoreError(
                f"the cache {self.name} has no entry of ours at {PREFIX}{key}"
            ) from None


def _ignore_failure(done: asyncio.Future[Any]) -> None:
    """A claim that is not renewed or released expires; a Redis that is away was reported."""
    if not done.cancelled():
        done.exception()
