"""The parent's side of worker processes, and of the fork server that starts them.

`zerowait.scorers.worker_process` is the child's side. Everything here belongs to one event loop and
needs no thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Final, TypeAlias, cast

from zerowait.scorers import worker_process as process
from zerowait.types import Abstain, FailureKind

_WARM_UP_CALLS: Final = 16
_CLOSE_S: Final = 10.0
_LOWER_PRIORITY: Final = 10
POOL_CLOSED: Final = Abstain(FailureKind.CANCELLED, "the scorer pool was closed")
CALL_CANCELLED: Final = Abstain(FailureKind.CANCELLED, "the call was cancelled")
WORKER_BLOCKED: Final = Abstain(
    FailureKind.CRASHED, "its process was ended for another call's sake"
)

WorkerAnswer: TypeAlias = list[bytes] | bytes | Abstain
"""One packed outcome per call; or bytes: empty for a scorer that was loaded, else one packed
abstention for all calls; or an abstention where the worker gave no answer."""


class Worker(asyncio.Protocol):
    """One worker process and the connection to it; each request has a number.

    Args:
        server: forks the process, and kills it.
        handshake: the first message to it.
        leak_bytes: growth since its first calls from which on `leaks_after_call` is true.

    Attributes:
        pid: process id; None until the fork server has reported it.
        loaded: names of the scorers it has loaded.
        has_lower_priority: whether `lower_priority` was called.
    """

    def __init__(self, server: ForkServer, handshake: process.Handshake, leak_bytes: int) -> None:
        self.pid: int | None = None
        self.loaded: set[str] = set()
        self.has_lower_priority = False
        self._server = server
        self._handshake = handshake
        self._leak_bytes = leak_bytes
        self._transport: asyncio.WriteTransport | None = None
        self._buffer = bytearray()
        self._pending: dict[int, tuple[str, asyncio.Future[WorkerAnswer]]] = {}
        self._numbers = 0
        self._calls = 0
        self._warm_bytes = 0
        self._exit: int | str | None = None  # exit code, or what happened
        self._is_disconnected = False
        self._stopped = False

    @property
    def is_usable(self) -> bool:
        """Whether requests can be sent to it."""
        return not self._stopped and not self._is_disconnected and self._exit is None

    @property
    def pending(self) -> int:
        """How many requests have no answer yet."""
        return len(self._pending)

    def ask(
        self, verb: str, target: str, calls: list[bytes]
    ) -> tuple[int, asyncio.Future[WorkerAnswer]]:
        """Send a request; returns its number and a future of its answer.

        The answer is an abstention if the worker dies.

        Args:
            verb: ``load`` or ``answer``.
            target: name of the scorer.
            calls: packed calls to answer; none to load.
        """
        self._numbers += 1
        reply: asyncio.Future[WorkerAnswer] = asyncio.get_running_loop().create_future()
        self._pending[self._numbers] = target, reply
        self._send(process.WorkerRequest(self._numbers, verb, target, calls))
        if not self.is_usable:
            self._fail(self._why_dead(target))
        return self._numbers, reply

    def cancel(self, number: int) -> None:
        """Cancel an asynchronous call; its answer is `CALL_CANCELLED`, unless it has just ended."""
        self._send(process.WorkerRequest(number, "cancel"))

    def forget(self, number: int) -> None:
        """Drop a request whose answer no caller waits for any more."""
        self._pending.pop(number, None)

    def stop(self, why: Abstain = POOL_CLOSED) -> None:
        """End the process and everything it started; pending requests get `why`.

        Returns at once.
        """
        if not self._stopped:
            self._stopped = True
            self._fail(why)
            if self.pid is not None:
                self._server.kill(self.pid)

    def lower_priority(self) -> None:
        """Lower the process's scheduling priority, for good; the system allows no way back."""
        if self.pid is not None and not self.has_lower_priority:
            self.has_lower_priority = True
            with contextlib.suppress(OSError):  # it has just ended
                os.setpriority(os.PRIO_PROCESS, self.pid, _LOWER_PRIORITY)

    def leaks_after_call(self) -> bool:
        """Count one answered call; whether the process has grown by more than `leak_bytes`.

        Growth during the first calls does not count: they may load a model.
        """
        self._calls += 1
        if self._calls > _WARM_UP_CALLS:
            return self._resident_bytes() - self._warm_bytes > self._leak_bytes
        if self._calls == _WARM_UP_CALLS:
            self._warm_bytes = self._resident_bytes()
        return False

    def on_started(self, pid: int) -> None:
        """The fork server has forked the process."""
        self.pid = pid
        if self._stopped or self._is_disconnected:
            self._server.kill(pid)

    def on_exited(self, how: int | str) -> None:
        """The process has ended, with this exit code or for this reason.

        Its last answers may still be in the connection, so requests fail only after that closes.
        """
        self._exit = how
        if self._is_disconnected:
            self._fail()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the handshake."""
        # uvloop's transports are no instances of asyncio's
        self._transport = cast("asyncio.WriteTransport", transport)
        handshake = pickle.dumps(self._handshake)
        self._transport.write(process.LENGTH_PREFIX.pack(len(handshake)) + handshake)

    def data_received(self, data: bytes) -> None:
        """Set the answers that have arrived completely."""
        self._buffer += data
        head = process.LENGTH_PREFIX.size
        while len(self._buffer) >= head:
            end = head + process.LENGTH_PREFIX.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            reply = _REPLY.decode(memoryview(self._buffer)[head:end])
            del self._buffer[:end]
            _, answer = self._pending.pop(reply.number, ("", None))
            if answer is not None and not answer.done():
                answer.set_result(CALL_CANCELLED if reply.outcomes is None else reply.outcomes)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """End the process if it only closed its connection; `on_exited` then says how it ended."""
        self._is_disconnected = True
        if self._exit is not None:
            self._fail()
        elif self.pid is not None:
            self._server.kill(self.pid)

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _send(self, request: process.WorkerRequest) -> None:
        if self.is_usable and self._transport is not None:
            self._transport.write(process.framed(request))

    def _fail(self, why: Abstain | None = None) -> None:
        """Answer every pending request with an abstention."""
        pending, self._pending = self._pending, {}
        for target, reply in pending.values():
            if not reply.done():
                reply.set_result(why or self._why_dead(target))
        if self._exit is not None or self._stopped:
            self.close()

    def _why_dead(self, target: str) -> Abstain:
        if self._stopped:
            return POOL_CLOSED
        how = self._exit
        if isinstance(how, int):
            how = (
                f"was ended by {signal.Signals(-how).name}"
                if how < 0
                else f"ended with exit code {how}"
            )
        said = f"{target}: its process {how or 'is gone'} before it answered"
        return Abstain(FailureKind.CRASHED, said)

    def _resident_bytes(self) -> int:
        """Resident memory of the process; 0 where the system does not tell."""
        try:
            pages = Path(f"/proc/{self.pid}/statm").read_bytes().split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


_REPLY = process.reply_decoder()


class ForkServer:
    """A process that forks workers in milliseconds; started itself when first needed.

    Args:
        leak_bytes: of each `Worker`.
    """

    def __init__(self, leak_bytes: int) -> None:
        self._leak_bytes = leak_bytes
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._buffer = bytearray()
        self._starting: deque[Worker] = deque()
        self._alive: dict[int, Worker] = {}
        self._preloaded: set[str] = set()
        self._ended: asyncio.Event | None = None
        self._closed = False

    async def fork(self, *, overlaps: bool = False, preloaded: str = "") -> Worker:
        """A new worker, which takes requests at once and answers when it has started.

        Args:
            overlaps: whether it runs asynchronous functions, many calls at once.
            preloaded: name of a built-in rule that this worker and all later ones have loaded.

        Raises:
            OSError: no process can be started.
        """
        control = self._running()
        if preloaded and preloaded not in self._preloaded:
            self._preloaded.add(preloaded)
            name = preloaded.encode()
            control.send(process.COMMAND.pack(process.PRELOAD, len(name)) + name)
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                ours.settimeout(0)
                command = process.COMMAND.pack(process.FORK, 0)
                socket.send_fds(control, [command], [theirs.fileno()])
            except BaseException:
                ours.close()
                raise
        handshake = process.Handshake(sys.path.copy(), dict(os.environ), overlaps)
        worker = Worker(self, handshake, self._leak_bytes)
        self._starting.append(worker)
        try:
            await asyncio.get_running_loop().create_connection(lambda: worker, sock=ours)
        except BaseException:
            worker.stop()
            ours.close()
            raise
        return worker

    def kill(self, pid: int) -> None:
        """End a worker and everything it started; does nothing once the worker has ended.

        So the signal never reaches another process that got the same id.
        """
        if pid in self._alive and self._control is not None:
            with contextlib.suppress(OSError):  # the fork server is gone, and its workers with it
                self._control.send(process.COMMAND.pack(process.KILL, pid))

    async def aclose(self) -> None:
        """End every worker; returns when all are gone."""
        self._closed = True
        if self._control is None or self._ended is None:
            return
        for worker in [*self._alive.values(), *self._starting]:
            worker.stop()
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._ended.wait()
        except TimeoutError:
            self._end("did not end in time")

    def _running(self) -> socket.socket:
        """The control connection to the fork server, which is started if need be."""
        if self._closed:
            raise OSError("the scorer pool was closed")
        if self._control is not None:
            return self._control
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._server = subprocess.Popen(  # noqa: S603 - this Python
                    process.fork_server_argv(theirs.fileno(), sys.path),
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        ours.settimeout(0)
        self._control, self._ended = ours, asyncio.Event()
        self._preloaded.clear()
        self._buffer.clear()
        asyncio.get_running_loop().add_reader(ours, self._read)
        return ours

    def _read(self) -> None:
        """Take in the fork server's reports: which workers have started, which have ended."""
        assert self._control is not None  # noqa: S101 - it is read
        try:
            data = self._control.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._buffer += data
        size = process.REPORT.size
        while len(self._buffer) >= size:
            verb, pid, code = process.REPORT.unpack_from(self._buffer)
            del self._buffer[:size]
            if verb == process.STARTED:
                worker = self._alive[pid] = self._starting.popleft()
                worker.on_started(pid)
            elif pid in self._alive:
                self._alive.pop(pid).on_exited(code)
        if not data:
            self._end("was ended with the one that had started it")

    def _end(self, how: str) -> None:
        """Clean up after the fork server has ended; the next worker starts a new one."""
        control, server, ended = self._control, self._server, self._ended
        self._control = self._server = None
        if control is None or server is None or ended is None:
            return
        asyncio.get_running_loop().remove_reader(control)
        control.close()
        server.kill()
        server.wait()
        workers = [*self._alive.values(), *self._starting]
        self._alive.clear()
        self._starting.clear()
        for worker in workers:
            worker.on_exited(how)
            worker.close()
        ended.set()


def timed_out(target: str, timeout_s: float) -> Abstain:
    """The abstention of a call that took too long."""
    return Abstain(FailureKind.TIMEOUT, f"{target} gave no answer in {timeout_s:g} s")


def not_started(error: OSError) -> Abstain:
    """The abstention where the system could not start a process."""
    why = f"no worker process could be started: {type(error).__name__}: {error}"
    return Abstain(FailureKind.CRASHED, why)
