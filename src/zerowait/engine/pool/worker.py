"""Worker processes as their parent sees them, and the fork server that starts them.

See `zerowait.scorers.worker_process` for the other side. Everything here belongs to one event loop
and needs no thread.
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

_SETTLING_CALLS: Final = 16
_CLOSE_S: Final = 10.0
_LOWER_PRIORITY: Final = 10
CLOSED: Final = Abstain(FailureKind.CANCELLED, "the scorer pool was closed")
CANCELLED: Final = Abstain(FailureKind.CANCELLED, "the call was cancelled")
LOST: Final = Abstain(FailureKind.CRASHED, "its process was ended for another call's sake")

WorkerAnswer: TypeAlias = list[bytes] | bytes | Abstain
"""Replies; or bytes for all that was asked: empty for nothing to say, else what went wrong."""


class Worker(asyncio.Protocol):
    """One worker process; calls are told apart by a number.

    Args:
        server: which forks it.
        hello: its first message.
        leak_bytes: growth after its first calls from which on `leaks`.
    """

    def __init__(self, server: ForkServer, hello: process.Hello, leak_bytes: int) -> None:
        self.pid: int | None = None
        self.loaded: set[str] = set()
        self.has_lower_priority = False
        self._server = server
        self._hello = hello
        self._leak_bytes = leak_bytes
        self._transport: asyncio.WriteTransport | None = None
        self._buffer = bytearray()
        self._pending: dict[int, tuple[str, asyncio.Future[WorkerAnswer]]] = {}
        self._numbers = 0
        self._calls = 0
        self._settled_bytes = 0
        self._exit: int | str | None = None
        self._is_cut_off = False
        self._stopped = False

    @property
    def is_usable(self) -> bool:
        """Whether it can be asked."""
        return not self._stopped and not self._is_cut_off and self._exit is None

    @property
    def calls(self) -> int:
        """How many calls are not answered."""
        return len(self._pending)

    def ask(
        self, verb: str, target: str, works: list[bytes]
    ) -> tuple[int, asyncio.Future[WorkerAnswer]]:
        """The number of a call, and what will be its answer; an abstention if the worker dies."""
        self._numbers += 1
        reply: asyncio.Future[WorkerAnswer] = asyncio.get_running_loop().create_future()
        self._pending[self._numbers] = target, reply
        self._send(process.WorkerRequest(self._numbers, verb, target, works))
        if not self.is_usable:
            self._fail(self._why(target))
        return self._numbers, reply

    def cancel(self, number: int) -> None:
        """Let an asynchronous call end; it is answered by `CANCELLED`, unless it has just ended."""
        self._send(process.WorkerRequest(number, "cancel"))

    def forget(self, number: int) -> None:
        """The caller of this number has gone."""
        self._pending.pop(number, None)

    def stop(self, why: Abstain = CLOSED) -> None:
        """End the process and everything it started; returns at once."""
        if not self._stopped:
            self._stopped = True
            self._fail(why)
            if self.pid is not None:
                self._server.kill(self.pid)

    def lower_priority(self) -> None:
        """Let other processes go first from now on; a process cannot take that back."""
        if self.pid is not None and not self.has_lower_priority:
            self.has_lower_priority = True
            with contextlib.suppress(OSError):  # it has just ended
                os.setpriority(os.PRIO_PROCESS, self.pid, _LOWER_PRIORITY)

    def leaks(self) -> bool:
        """Whether the worker, which has answered once more, has grown too much.

        The first calls do not count: they may load a model.
        """
        self._calls += 1
        if self._calls > _SETTLING_CALLS:
            return self._resident_bytes() - self._settled_bytes > self._leak_bytes
        if self._calls == _SETTLING_CALLS:
            self._settled_bytes = self._resident_bytes()
        return False

    def started(self, pid: int) -> None:
        """The fork server has forked it."""
        self.pid = pid
        if self._stopped or self._is_cut_off:
            self._server.kill(pid)

    def exited(self, how: int | str) -> None:
        """The process ended, with this exit code or for this reason; its last words may be here."""
        self._exit = how
        if self._is_cut_off:
            self._fail()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection can be used."""
        # uvloop's are no instances of asyncio's
        self._transport = cast("asyncio.WriteTransport", transport)
        hello = pickle.dumps(self._hello)
        self._transport.write(process.LENGTH_PREFIX.pack(len(hello)) + hello)

    def data_received(self, data: bytes) -> None:
        """Hand out the answers that are complete."""
        self._buffer += data
        head = process.LENGTH_PREFIX.size
        while len(self._buffer) >= head:
            end = head + process.LENGTH_PREFIX.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            reply = _REPLY.decode(memoryview(self._buffer)[head:end])
            del self._buffer[:end]
            _, asked = self._pending.pop(reply.number, ("", None))
            if asked is not None and not asked.done():
                asked.set_result(CANCELLED if reply.replies is None else reply.replies)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the port's signature
        """The process ended or has closed its end, and then is ended: how, is told in `exited`."""
        self._is_cut_off = True
        if self._exit is not None:
            self._fail()
        elif self.pid is not None:
            self._server.kill(self.pid)

    def close(self) -> None:
        """Let go of the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _send(self, request: process.WorkerRequest) -> None:
        if self.is_usable and self._transport is not None:
            self._transport.write(process.framed(request))

    def _fail(self, why: Abstain | None = None) -> None:
        pending, self._pending = self._pending, {}
        for target, reply in pending.values():
            if not reply.done():
                reply.set_result(why or self._why(target))
        if self._exit is not None or self._stopped:
            self.close()

    def _why(self, target: str) -> Abstain:
        if self._stopped:
            return CLOSED
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
        """The memory that the process holds; 0 where that cannot be told."""
        try:
            pages = Path(f"/proc/{self.pid}/statm").read_bytes().split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


_REPLY = process.decoder()


class ForkServer:
    """Starts worker processes in milliseconds; is started itself when first needed.

    Args:
        leak_bytes: see `Worker`.
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
        """A new worker, which may be asked at once; it starts meanwhile.

        Args:
            overlaps: whether it runs asynchronous functions, many calls at once.
            preloaded: a built-in rule that this one and all later ones have loaded.

        Raises:
            OSError: no process can be started.
        """
        control = self._started()
        if preloaded and preloaded not in self._preloaded:
            self._preloaded.add(preloaded)
            name = preloaded.encode()
            control.send(process.ORDER.pack(process.PRELOAD, len(name)) + name)
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                ours.settimeout(0)
                order = process.ORDER.pack(process.FORK, 0)
                socket.send_fds(control, [order], [theirs.fileno()])
            except BaseException:
                ours.close()
                raise
        hello = process.Hello(sys.path.copy(), dict(os.environ), overlaps)
        worker = Worker(self, hello, self._leak_bytes)
        self._starting.append(worker)
        try:
            await asyncio.get_running_loop().create_connection(lambda: worker, sock=ours)
        except BaseException:
            worker.stop()
            ours.close()
            raise
        return worker

    def kill(self, pid: int) -> None:
        """End a worker and everything it started; one that has ended is nobody else by now."""
        if pid in self._alive and self._control is not None:
            with contextlib.suppress(OSError):  # the fork server is gone, and its workers with it
                self._control.send(process.ORDER.pack(process.KILL, pid))

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

    def _started(self) -> socket.socket:
        if self._closed:
            raise OSError("the scorer pool was closed")
        if self._control is not None:
            return self._control
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._server = subprocess.Popen(  # noqa: S603 - this Python
                    process.command(theirs.fileno(), sys.path),
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
                worker.started(pid)
            elif pid in self._alive:
                self._alive.pop(pid).exited(code)
        if not data:
            self._end("was ended with the one that had started it")

    def _end(self, how: str) -> None:
        """The fork server has ended; the next worker needs another one."""
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
            worker.exited(how)
            worker.close()
        ended.set()
