"""The processes in which scorers run: a fork server, and the workers that it forks.

The fork server has imported what workers need and then does nothing but fork: a worker is there in
milliseconds, and shares most of its memory with the others. It runs no scorer and has one thread.
It ends with the process that started it, and all workers, with what those have started, end with
it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

import msgspec

from zerowait.scorers import remote

ORDER: Final = struct.Struct("<cI")
"""What the fork server is told: an operation and a process id, or for PRELOAD a length in bytes."""

REPORT: Final = struct.Struct("<cIi")
"""What it tells: an operation, a process id, and for ENDED the exit code as `subprocess` has it."""

FORK: Final = b"F"
KILL: Final = b"K"
PRELOAD: Final = b"P"
STARTED: Final = b"S"
ENDED: Final = b"E"

LENGTH_PREFIX: Final = struct.Struct("<I")
"""Before every message to or from a worker."""

_PARENT_CHECK_S: Final = 1.0
_PR_SET_PDEATHSIG: Final = 1


class Hello(NamedTuple):
    """The first message to a worker, pickled: how its parent's process looks now.

    Args:
        path: ``sys.path``.
        environ: the environment.
        overlaps: whether it runs asynchronous functions, many calls at once.
    """

    path: list[str]
    environ: dict[str, str]
    overlaps: bool


class WorkerRequest(msgspec.Struct, frozen=True, array_like=True):
    """A call of a worker: ``load`` a scorer, ``answer`` with it, or ``cancel`` that call."""

    number: int
    verb: str
    target: str = ""
    works: list[bytes] = []


class WorkerReply(msgspec.Struct, frozen=True, array_like=True):
    """What a worker answers.

    Args:
        number: of the request.
        replies: one for each work; or bytes: empty when loaded, else the abstention for all; or
            None when the call was cancelled.
    """

    number: int
    replies: list[bytes] | bytes | None


ENCODE: Final = msgspec.msgpack.Encoder().encode
_REQUEST: Final = msgspec.msgpack.Decoder(WorkerRequest)
_Take: TypeAlias = Callable[[int], bytes]


def framed(message: WorkerRequest | WorkerReply) -> bytes:
    """The message as it travels."""
    body = ENCODE(message)
    return LENGTH_PREFIX.pack(len(body)) + body


def run_fork_server(control_fd: int) -> NoReturn:
    """Fork a worker for each order from `control_fd`; ends all of them when it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    gc.freeze()  # what is shared with the workers stays shared
    with socket.socket(fileno=control_fd) as control:
        _ForkServer(control).run()
    os._exit(0)


class _ForkServer:
    """Takes orders and reports deaths, on one thread."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._parent = os.getppid()
        self._alive: set[int] = set()
        self._wakeup, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self) -> None:
        waited_for, none = [self._control.fileno(), self._wakeup], list[int]()
        with contextlib.suppress(OSError):  # the parent is gone: that is an end like any other
            while os.getppid() == self._parent:
                ready = select.select(waited_for, none, none, _PARENT_CHECK_S)[0]
                if self._wakeup in ready:
                    os.read(self._wakeup, 4096)
                self._reap()
                if self._control.fileno() in ready and not self._obey():
                    break
        for pid in self._alive:
            _end_group(pid)
        with contextlib.suppress(OSError):
            while self._alive:
                self._bury(*os.waitpid(-1, 0))

    def _obey(self) -> bool:
        """Carry out one order; False when there will be none any more."""
        order, fds, _, _ = socket.recv_fds(self._control, ORDER.size, 1, socket.MSG_WAITALL)
        if len(order) < ORDER.size:
            return False
        verb, number = ORDER.unpack(order)
        if verb == FORK:
            self._fork(socket.socket(fileno=fds[0]))
        elif verb == KILL and number in self._alive:
            _end_group(number)
        elif verb == PRELOAD:
            name = self._control.recv(number, socket.MSG_WAITALL).decode()
            remote.load(name)  # what is in the way is told to whoever needs it, by its worker
            gc.freeze()
        return True

    def _fork(self, connection: socket.socket) -> None:
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                self._control.close()
                os.close(self._wakeup)
                _work(connection)
            finally:
                os._exit(0)
        connection.close()
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # here, too: it may be told to end before it has come so far
        self._alive.add(pid)
        self._control.sendall(REPORT.pack(STARTED, pid, 0))

    def _reap(self) -> None:
        while self._alive:
            # what it started is ended before its id can become another process's
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return
            _end_group(ended.si_pid)
            self._bury(*os.waitpid(ended.si_pid, 0))

    def _bury(self, pid: int, status: int) -> None:
        self._alive.discard(pid)
        self._control.sendall(REPORT.pack(ENDED, pid, os.waitstatus_to_exitcode(status)))


def _end_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _work(connection: socket.socket) -> None:
    """A worker's life: answer until the connection is closed."""
    os.setpgid(0, 0)  # a group of its own, so that what it starts ends with it
    _die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # not through a file: that would read ahead, and what is read ahead is for the loop
    first = _message(lambda size: connection.recv(size, socket.MSG_WAITALL))
    if first is None:
        return
    hello: Hello = pickle.loads(first)  # noqa: S301 (our parent's)
    sys.path[:] = hello.path
    if hello.environ != dict(os.environ):
        os.environ.clear()
        os.environ.update(hello.environ)
    if hello.overlaps:
        asyncio.run(_overlapping(connection))
    with connection.makefile("rb") as stream:
        _one_by_one(connection, stream.read)


def _die_with_parent() -> None:
    """Where the system can: end even inside a call of a C library, if the fork server is killed."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _message(read: _Take) -> bytes | None:
    head = read(LENGTH_PREFIX.size)
    if len(head) < LENGTH_PREFIX.size:
        return None
    return read(LENGTH_PREFIX.unpack(head)[0])


def _one_by_one(connection: socket.socket, read: _Take) -> None:
    while (message := _message(read)) is not None:
        request = _REQUEST.decode(message)
        if request.verb == "load":
            replies: list[bytes] | bytes = remote.load(request.target)
        else:
            replies = remote.answer_many(request.target, request.works)
        connection.sendall(framed(WorkerReply(request.number, replies)))


async def _overlapping(connection: socket.socket) -> None:
    """As many calls at once as are asked for; asynchronous functions share this loop."""
    connection.settimeout(0)
    reader, writer = await asyncio.open_connection(sock=connection)
    calls: dict[int, asyncio.Task[None]] = {}

    async def answer(request: WorkerRequest) -> None:
        replies = await remote.answer_one(request.target, request.works[0])
        writer.write(framed(WorkerReply(request.number, replies)))

    def told(request: WorkerRequest) -> None:
        if request.verb == "load":
            writer.write(framed(WorkerReply(request.number, remote.load(request.target))))
        elif request.verb == "cancel":
            if request.number in calls:
                calls[request.number].cancel()
            writer.write(framed(WorkerReply(request.number, None)))
        else:
            task = calls[request.number] = asyncio.create_task(answer(request))
            task.add_done_callback(lambda _: calls.pop(request.number))

    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readexactly(LENGTH_PREFIX.size)
            told(_REQUEST.decode(await reader.readexactly(LENGTH_PREFIX.unpack(head)[0])))
    os._exit(0)  # its parent is gone: nobody waits for what is still running


def command(control_fd: int, path: list[str]) -> list[str]:
    """The command line of a fork server that finds this module where this process does."""
    code = (
        "import sys; sys.path[:] = sys.argv[2:]; "
        "from zerowait.scorers.worker_process import run_fork_server; "
        "run_fork_server(int(sys.argv[1]))"
    )
    return [sys.executable, "-c", code, str(control_fd), *path]


def decoder() -> msgspec.msgpack.Decoder[Any]:
    """For a worker's replies."""
    return msgspec.msgpack.Decoder(WorkerReply)
