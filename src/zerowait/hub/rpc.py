"""RPC between worker processes and a hub: pending calls, wire format, sessions, TCP connection.

Worker: `PendingCalls` holds the calls that callers await; `pump` moves them over a `RpcTransport`.
Hub: `Sessions` runs the calls of each worker, and `RpcServer` accepts connections, one per session.
Over an `RpcConnection` a row costs a tenth of what the call of a Ray actor costs.

Messages are pickled, as Ray's own are. So a client names its session first, a secret that only the
actor's methods hand out, and the server answers with a secret of its own: neither side unpickles
bytes from a stranger.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import pickle
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from zerowait.errors import DataError, ZerowaitError

T = TypeVar("T")
R = TypeVar("R")

CallResult: TypeAlias = tuple[int, R | ZerowaitError]
"""A call's id, and its result or the error that it raised."""
Pickler: TypeAlias = Callable[[Any], bytes]

HEARTBEAT_S: Final = 10.0
"""Worker and hub send a message at least this often, an empty one if there is nothing to say."""
SECRET_CHARS: Final = 32
_LARGEST_BATCH: Final = 256
_BATCHING_S: Final = 0.001
"""Pause after each message: calls that arrive meanwhile share the next one, a single one is sent
without delay."""
_LENGTH_BYTES: Final = 8
_CONNECT_TIMEOUT_S: Final = 5.0
_SERVER_SECRET_TIMEOUT_S: Final = 30.0
_SESSION_NAME_TIMEOUT_S: Final = 10.0
_SILENCE_CHECKS: Final = 4
"""Timer ticks in a connection's silence timeout: a process that was suspended counts only one."""
_RECONNECT_S: Final = 5.0
"""How long a worker has to connect again before its calls are cancelled."""

_log = logging.getLogger(__name__)


class _PendingCall(Generic[T, R]):
    """A payload and the future of its result."""

    __slots__ = ("payload", "result")

    def __init__(self, payload: T) -> None:
        self.payload = payload
        self.result: asyncio.Future[R] = asyncio.get_running_loop().create_future()

    def settle(self, result: R | ZerowaitError) -> None:
        if self.result.done():
            return
        if isinstance(result, ZerowaitError):
            self.result.set_exception(result)
            self.result.exception()  # its caller may just have been cancelled
        else:
            self.result.set_result(result)


class PendingCalls(Generic[T, R]):
    """The calls of one event loop that await a result, and the queue of those not yet sent.

    `T` is a call's payload, such as an encoded sample; `R` its result.
    """

    def __init__(self) -> None:
        self._ids = itertools.count()
        self._calls: dict[int, _PendingCall[T, R]] = {}
        self._queue: deque[int] = deque()
        self._queued = asyncio.Event()

    @property
    def waiting(self) -> bool:
        """Whether any caller waits for a result."""
        return bool(self._calls)

    async def call(self, payload: T) -> R:
        """The result for `payload`, once `settle` brings it; cancelling the wait cancels the call.

        Raises:
            ZerowaitError: the hub raised it, or `fail` was called with it.
        """
        call_id = next(self._ids)
        call: _PendingCall[T, R] = _PendingCall(payload)
        self._calls[call_id] = call
        self._enqueue(call_id)
        try:
            return await call.result
        finally:
            del self._calls[call_id]
            if call.result.cancelled():
                self._enqueue(call_id)  # `next_batch` reports it as cancelled

    async def wait_until_queued(self) -> None:
        """Wait until there is something to send."""
        await self._queued.wait()

    async def next_batch(self) -> tuple[list[tuple[int, T]], list[int]]:
        """Calls to send, as (id, payload), and ids of calls to cancel; waits until there are any.

        Together at most 256.
        """
        await self._queued.wait()
        calls, cancelled = [], []
        for _ in range(min(_LARGEST_BATCH, len(self._queue))):
            call_id = self._queue.popleft()
            call = self._calls.get(call_id)
            if call is None:
                cancelled.append(call_id)
            else:
                calls.append((call_id, call.payload))
        if not self._queue:
            self._queued.clear()
        return calls, cancelled

    def settle(self, results: Iterable[CallResult[R]]) -> None:
        """Give results to the callers that await them."""
        for call_id, result in results:
            call = self._calls.get(call_id)
            if call is not None:
                call.settle(result)

    def fail(self, error: ZerowaitError) -> None:
        """Raise `error` in every caller."""
        for call in self._calls.values():
            call.settle(error)

    def requeue(self) -> None:
        """Queue every unanswered call again: the next session knows none of them."""
        self._queue = deque(i for i, call in self._calls.items() if not call.result.done())
        (self._queued.set if self._queue else self._queued.clear)()

    def _enqueue(self, call_id: int) -> None:
        self._queue.append(call_id)
        self._queued.set()


class RpcTransport(Protocol[T, R]):
    """A worker's end of one session with a hub."""

    async def submit(self, calls: list[tuple[int, T]], cancelled: list[int], /) -> bool:
        """Send calls, as (id, payload), and ids of cancelled ones; False: the session is over."""
        ...

    async def collect(self) -> list[CallResult[R]] | None:
        """The next results, empty for a heartbeat; None: the session is over."""
        ...


async def pump(pending: PendingCalls[T, R], transport: RpcTransport[T, R]) -> None:
    """Send pending calls and settle them, until a heartbeat finds none or the session is over.

    Raises:
        Exception: what `transport` raises.
    """
    tasks = {
        asyncio.create_task(_send_calls(pending, transport)),
        asyncio.create_task(_receive_results(pending, transport)),
    }
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _send_calls(pending: PendingCalls[T, R], transport: RpcTransport[T, R]) -> None:
    while await transport.submit(*await pending.next_batch()):
        pass


async def _receive_results(pending: PendingCalls[T, R], transport: RpcTransport[T, R]) -> None:
    while (results := await transport.collect()) is not None and (results or pending.waiting):
        pending.settle(results)


def encode_message(
    payloads: Iterable[tuple[int, Any]], cancelled: Sequence[int], *, dumps: Pickler
) -> bytes:
    """Payloads with their call ids, and the ids of cancelled calls, as one message.

    Each payload is pickled alone: one that cannot be pickled becomes a `DataError`, and the other
    payloads travel.

    Args:
        payloads: (call id, payload) pairs.
        cancelled: ids of calls to cancel, or whose results were received.
        dumps: pickles a payload.
    """

    def pickled(payload: Any) -> bytes:
        try:
            return dumps(payload)
        except Exception as error:  # noqa: BLE001 - a class may raise anything when it is pickled
            why = f"it cannot be sent to another process: {type(error).__name__}: {error}"
            return pickle.dumps(DataError(why))

    return pickle.dumps(([(i, pickled(payload)) for i, payload in payloads], cancelled))


def decode_message(body: bytes) -> tuple[list[tuple[int, Any]], Sequence[int]]:
    """(call id, payload) pairs and cancelled ids of a message.

    A payload that could not be pickled, or cannot be unpickled here, is a `DataError`.
    """

    def unpickled(part: bytes) -> Any:
        try:
            return pickle.loads(part)  # noqa: S301 - the sender knows a secret of the job
        except Exception as error:  # noqa: BLE001 - its class may not be importable here, say
            why = f"{type(error).__name__}: {error}"
            return DataError(f"the process that it was sent to cannot read it: {why}")

    parts, cancelled = pickle.loads(body)  # noqa: S301 - as above
    return [(call_id, unpickled(part)) for call_id, part in parts], cancelled


def frame(body: bytes) -> bytes:
    """`body` with its length in front, as it is sent."""
    return len(body).to_bytes(_LENGTH_BYTES) + body


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The body of the next frame; None when the connection has ended."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES))
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, OSError):
        return None


class RpcAddress(msgspec.Struct, frozen=True):
    """The TCP address of a hub's process.

    Args:
        host, port: where its `RpcServer` listens.
        server_secret: what the server answers to a client that names a session, as proof that it
            is this hub.
    """

    host: str
    port: int
    server_secret: str


class RpcConnection(Generic[T, R]):
    """The worker's end of a session over TCP: a `RpcTransport`.

    Args:
        reader, writer: the connection, past its handshake.
        dumps: pickles a call's payload.
        heartbeat_s: the longest between two messages of this side; the hub ends a session from
            which it hears nothing for much longer.
        silence_timeout_s: the longest the hub may send nothing while this process is running.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        dumps: Pickler,
        heartbeat_s: float,
        silence_timeout_s: float,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._dumps = dumps
        self._heartbeat_s = heartbeat_s
        self._loop = asyncio.get_running_loop()
        self._last_sent_at = self._loop.time()
        self._tick_s = silence_timeout_s / _SILENCE_CHECKS
        self._silent_ticks = 0
        self._timer = self._loop.call_later(self._tick_s, self._check_silence)
        self._received_ids: list[int] = []
        self.received_any = False
        """Whether any message came from the hub."""
        self.silent = False
        """Whether it was ended because the hub was silent for too long."""
        self.over = False
        """Whether the connection ended otherwise than by `close`."""

    async def submit(self, calls: list[tuple[int, T]], cancelled: list[int]) -> bool:
        """Send calls and cancelled ids, with receipts for received results; False: it has ended."""
        self._last_sent_at = self._loop.time()
        receipts, self._received_ids = self._received_ids, []
        message = encode_message(calls, cancelled + receipts, dumps=self._dumps)
        try:
            self._writer.write(frame(message))
            await self._writer.drain()
        except OSError:
            self.over = True
            return False
        await asyncio.sleep(_BATCHING_S)
        return True

    async def collect(self) -> list[CallResult[R]] | None:
        """The next results, empty for a heartbeat; None: the connection has ended."""
        body = await read_frame(self._reader)
        if body is None:
            self.over = True
            return None
        self.received_any, self._silent_ticks = True, 0
        results: list[CallResult[R]] = decode_message(body)[0]
        if self._loop.time() - self._last_sent_at >= self._heartbeat_s:
            await self.submit([], [])
        self._received_ids += [call_id for call_id, _ in results]
        return results

    def close(self) -> None:
        """End the connection, and the session with it."""
        self._timer.cancel()
        if not self._loop.is_closed():
            # abort, because a hub that no longer reads would keep `close` waiting for its buffer
            self._writer.transport.abort()

    def _check_silence(self) -> None:
        """Count ticks, not seconds: a process that was suspended has messages still to read."""
        self._silent_ticks += 1
        self.silent = self._silent_ticks > _SILENCE_CHECKS
        if self.silent:
            self.close()
        else:
            self._timer = self._loop.call_later(self._tick_s, self._check_silence)


async def open_connection(
    address: RpcAddress,
    session: str,
    *,
    dumps: Pickler,
    heartbeat_s: float,
    silence_timeout_s: float,
) -> RpcConnection[Any, Any] | None:
    """A connection for `session`; None where the address is unreachable or not this hub's.

    Args:
        address: of the hub's process.
        session: its secret name.
        dumps: see `RpcConnection`, as for the next two.
        heartbeat_s: in seconds.
        silence_timeout_s: in seconds.
    """
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(address.host, address.port)
    except OSError:  # a TimeoutError is one, too
        return None
    proven = False
    try:
        writer.write(session.encode())
        async with asyncio.timeout(_SERVER_SECRET_TIMEOUT_S):
            answer = await reader.readexactly(SECRET_CHARS)
        proven = answer == address.server_secret.encode()
    except (asyncio.IncompleteReadError, OSError):
        return None
    finally:
        if not proven:
            writer.transport.abort()
    if not proven:
        return None
    return RpcConnection(
        reader, writer, dumps=dumps, heartbeat_s=heartbeat_s, silence_timeout_s=silence_timeout_s
    )


class _Session(Generic[R]):
    """The calls of one worker: running, finished, and sent without a receipt."""

    def __init__(self) -> None:
        self.running: dict[int, asyncio.Task[None]] = {}
        self.results: list[CallResult[R]] = []
        self.unreceipted: dict[int, R | ZerowaitError] = {}
        self.inherited: dict[int, R | ZerowaitError] = {}  # undelivered over the last connection
        self.unclaimed: set[int] = set()  # running, and not yet asked for over this connection
        self.has_results = asyncio.Event()
        self.last_heard_at = 0.0
        self.timer: asyncio.TimerHandle | None = None

    def settle(self, call_id: int, result: R | ZerowaitError) -> None:
        if call_id in self.unclaimed:  # sent now, it would cross its caller's new request for it
            self.unclaimed.discard(call_id)
            self.inherited[call_id] = result
            return
        self.results.append((call_id, result))
        self.has_results.set()

    def reconnect(self) -> None:
        """Keep what is running and what was not delivered until the worker asks for it again."""
        self.unclaimed = set(self.running)
        self.inherited |= self.unreceipted | dict(self.results)
        self.unreceipted, self.results = {}, []
        self.has_results.set()  # ends the `collect` of the last connection
        self.has_results = asyncio.Event()

    def set_timer(self, timer: asyncio.TimerHandle | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = timer

    def cancel(self, call_ids: Iterable[int]) -> None:
        for call_id in list(call_ids):
            call = self.running.pop(call_id, None)
            if call is not None:
                call.cancel()

    def cancel_unclaimed(self, unclaimed: set[int]) -> None:
        """Cancel the calls that no caller waits for, unless there was another reconnect since."""
        if unclaimed is self.unclaimed:
            self.cancel(unclaimed)


class Sessions(Generic[T, R]):
    """The hub's side of RPC: runs the calls of several workers, each in a session of its own.

    A killed worker cannot cancel its calls, which would be paid for and would hold slots that
    others need. So they are cancelled 5 s after its connection has ended, unless the worker has
    connected again, and after it was silent for `session_timeout_s`. Belongs to one event loop.

    Args:
        handle: gives a call's result.
        heartbeat_s: the longest that `collect` waits before it answers with no results.
        session_timeout_s: the longest a worker may be silent, and how long the results of a
            disconnected session are kept for the worker's next one.
    """

    def __init__(
        self,
        handle: Callable[[T], Awaitable[R]],
        *,
        heartbeat_s: float,
        session_timeout_s: float,
    ) -> None:
        self._handle = handle
        self._heartbeat_s = heartbeat_s
        self._session_timeout_s = session_timeout_s
        self._sessions: dict[str, _Session[R]] = {}
        self._disconnected: dict[str, _Session[R]] = {}

    def __len__(self) -> int:
        """The number of open sessions."""
        return len(self._sessions)

    def __contains__(self, name: str) -> bool:
        """Whether the session `name` is open."""
        return name in self._sessions

    def open(self, name: str, previous: str = "") -> None:
        """Open a session; it takes over the calls and results of the worker's `previous` one."""
        loop = asyncio.get_running_loop()
        session = self._sessions.pop(previous, None) or self._disconnected.pop(previous, None)
        if session is None:
            session = _Session()
        session.reconnect()
        if session.unclaimed:
            loop.call_later(_RECONNECT_S, session.cancel_unclaimed, session.unclaimed)
        session.last_heard_at = loop.time()
        self._sessions[name] = session
        session.set_timer(loop.call_later(self._session_timeout_s, self._check_silence, name))

    def submit(
        self, name: str, calls: Iterable[tuple[int, T | ZerowaitError]], cancelled: Iterable[int]
    ) -> bool:
        """Start `calls` and cancel others; False: the session is over, and open another.

        Args:
            name: of the session.
            calls: (id, payload) pairs; an error in place of a payload is the call's result.
            cancelled: ids of calls that were cancelled, or whose results were received.
        """
        session = self._sessions.get(name)
        if session is None:
            return False
        session.last_heard_at = asyncio.get_running_loop().time()
        for call_id, payload in calls:
            session.unclaimed.discard(call_id)
            if call_id in session.inherited:
                session.settle(call_id, session.inherited.pop(call_id))
            elif call_id not in session.running:
                task = asyncio.create_task(self._run(session, call_id, payload))
                session.running[call_id] = task
        for call_id in cancelled:
            session.unreceipted.pop(call_id, None)
            session.inherited.pop(call_id, None)
            session.cancel([call_id])
        return True

    async def collect(self, name: str, *, from_worker: bool = True) -> list[CallResult[R]] | None:
        """The results since the last time; empty after `heartbeat_s`, None: the session is over.

        Args:
            name: of the session.
            from_worker: the worker itself asks, which proves that it lives. The `RpcServer` asks
                without it: then the results are kept until the worker sends receipts.
        """
        session = self._sessions.get(name)
        if session is None:
            return None
        if from_worker:
            session.last_heard_at = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._heartbeat_s):
                await session.has_results.wait()
        except TimeoutError:
            pass
        if self._sessions.get(name) is not session:
            return None  # disconnected meanwhile, or taken over by the worker's next one
        session.has_results.clear()
        results, session.results = session.results, []
        if not from_worker:
            session.unreceipted.update(results)
        return results

    def close(self, name: str) -> None:
        """End a session for good: cancel its calls and drop its results."""
        session = self._sessions.pop(name, None) or self._disconnected.pop(name, None)
        if session is not None:
            session.set_timer(None)
            session.cancel(session.running)

    def disconnect(self, name: str) -> None:
        """End the session's connection; its calls go on for 5 s, for the worker's next one."""
        session = self._sessions.pop(name, None)
        if session is not None:
            self._disconnected[name] = session
            loop = asyncio.get_running_loop()
            session.set_timer(loop.call_later(_RECONNECT_S, self._give_up, name))

    def _give_up(self, name: str) -> None:
        """Cancel the calls of a disconnected session, and keep its results for a while."""
        session = self._disconnected[name]
        session.cancel(session.running)
        session.reconnect()
        if not session.inherited:
            del self._disconnected[name]
            return
        loop = asyncio.get_running_loop()
        session.set_timer(loop.call_later(self._session_timeout_s, self._disconnected.pop, name))

    async def _run(self, session: _Session[R], call_id: int, payload: T | ZerowaitError) -> None:
        result: R | ZerowaitError
        try:
            result = payload if isinstance(payload, ZerowaitError) else await self._handle(payload)
        except ZerowaitError as error:
            result = error
        except Exception as error:  # noqa: BLE001 - logged, and the caller gets an error
            _log.exception("a call failed in the hub")
            result = ZerowaitError(f"the hub failed ({type(error).__name__}): see its log")
        session.running.pop(call_id, None)
        session.settle(call_id, result)

    def _check_silence(self, name: str) -> None:
        loop, session = asyncio.get_running_loop(), self._sessions[name]
        expires_at = session.last_heard_at + self._session_timeout_s
        if loop.time() < expires_at:
            session.set_timer(loop.call_at(expires_at, self._check_silence, name))
        else:
            self.disconnect(name)
            session.set_timer(None)
            self._give_up(name)


class RpcServer(Generic[T, R]):
    """Accepts TCP connections of workers that know a session's name; belongs to one event loop.

    Args:
        sessions: the sessions that clients may name.
        host: the address to listen on, at a free port; None never listens.
    """

    def __init__(self, sessions: Sessions[T, R], host: str | None) -> None:
        self._sessions = sessions
        self._host = host
        self._secret = secrets.token_hex(SECRET_CHARS // 2)
        self._server: asyncio.Server | None = None
        self._starting = asyncio.Lock()

    async def address(self) -> RpcAddress | None:
        """The address, listening from now on at the latest; None where it cannot listen."""
        async with self._starting:
            if self._server is None and self._host is not None:
                try:
                    self._server = await asyncio.start_server(self._serve, self._host, 0)
                except OSError as error:
                    _log.warning("the hub cannot listen on %s: %s", self._host, error)
                    self._host = None
        if self._server is None or self._host is None:
            return None
        return RpcAddress(self._host, self._server.sockets[0].getsockname()[1], self._secret)

    def close(self) -> None:
        """Accept no more connections; open ones stay until their clients leave."""
        self._host = None
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = ""
        try:
            async with asyncio.timeout(_SESSION_NAME_TIMEOUT_S):
                name = (await reader.readexactly(SECRET_CHARS)).decode(errors="replace")
        except (asyncio.IncompleteReadError, OSError):
            pass  # no session has an empty name
        if name not in self._sessions:
            writer.close()
            return
        writer.write(self._secret.encode())
        sending = asyncio.create_task(self._send_results(name, writer))
        try:
            while (body := await read_frame(reader)) is not None:
                if not self._sessions.submit(name, *decode_message(body)):
                    break
        finally:
            self._sessions.disconnect(name)
            sending.cancel()
            writer.transport.abort()

    async def _send_results(self, name: str, writer: asyncio.StreamWriter) -> None:
        try:
            while (results := await self._sessions.collect(name, from_worker=False)) is not None:
                writer.write(frame(encode_message(results, (), dumps=pickle.dumps)))
                await writer.drain()
                await asyncio.sleep(_BATCHING_S)
        except OSError:
            return  # `_serve` sees the end of the connection, too
        finally:
            writer.transport.abort()
