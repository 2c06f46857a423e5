"""The child's side of worker processes: a fork server, and the workers that it forks.

The fork server has imported what workers need and then does nothing but fork: a worker starts in
milliseconds, and shares most of its memory with the others. It runs no scorer and has one thread.
It ends with the process that started it; all workers end with it, and so does every process that
they have started. `zerowait.engine.pool.worker` is the parent's side.
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

from zerowait.scorers import worker_calls

COMMAND: Final = struct.Struct("<cI")
"""A command to the fork server: an operation and a process id; for PRELOAD a length in bytes."""

REPORT: Final = struct.Struct("<cIi")
"""A report of the fork server: an event, a process id, and for ENDED the exit code, which is minus
the number of the signal that ended it."""

FORK: Final = b"F"
KILL: Final = b"K"
PRELOAD: Final = b"P"
STARTED: Final = b"S"
ENDED: Final = b"E"

LENGTH_PREFIX: Final = struct.Struct("<I")
"""Before every message to or from a worker."""

_PARENT_CHECK_S: Final = 1.0
_PR_SET_PDEATHSIG: Final = 1


class Handshake(NamedTuple):
    """The first message to a worker, pickled: the state of its parent's process.

    Args:
        path: ``sys.path``.
        environ: the environment.
        overlaps: whether it runs asynchronous functions, many calls at once.
    """

    path: list[str]
    environ: dict[str, str]
    overlaps: bool


class WorkerRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request to a worker.

    Args:
        number: identifies the request.
        verb: ``load`` a scorer, ``answer`` calls with it, or ``cancel`` the request of that number.
        target: name of the scorer.
        calls: packed calls, see `worker_calls.packed_call`.
    """

    number: int
    verb: str
    target: str = ""
    calls: list[bytes] = []


class WorkerReply(msgspec.Struct, frozen=True, array_like=True):
    """A worker's answer to a request.

    Args:
        number: of the request.
        outcomes: one packed outcome per call; or bytes: empty when the scorer was loaded, else one
            packed abstention for all calls; or None when the call was cancelled.
    """

    number: int
    outcomes: list[bytes] | bytes | None


ENCODE: Final = msgspec.msgpack.Encoder().encode
_REQUEST: Final = msgspec.msgpack.Decoder(WorkerRequest)
_Read: TypeAlias = Callable[[int], bytes]


def framed(message: WorkerRequest | WorkerReply) -> bytes:
    """The message as bytes, behind its length."""
    body = ENCODE(message)
    return LENGTH_PREFIX.pack(len(body)) + body


def run_fork_server(control_fd: int) -> NoReturn:
    """Carry out the commands that arrive on `control_fd`; ends all workers when it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    gc.freeze()  # what is shared with the workers stays shared
    with socket.socket(fileno=control_fd) as control:
        _ForkServerLoop(control).run()
    os._exit(0)


class _ForkServerLoop:
    """Carries out commands and reports which workers ended, on one thread."""

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
                if self._control.fileno() in ready and not self._carry_out_command():
                    break
        for pid in self._alive:
            _end_group(pid)
        with contextlib.suppress(OSError):
            while self._alive:
                self._report_exit(*os.waitpid(-1, 0))

    def _carry_out_command(self) -> bool:
        """Carry out the next command; False when the connection was closed."""
        command, fds, _, _ = socket.recv_fds(self._control, COMMAND.size, 1, socket.MSG_WAITALL)
        if len(command) < COMMAND.size:
            return False
        verb, number = COMMAND.unpack(command)
        if verb == FORK:
            self._fork(socket.socket(fileno=fds[0]))
        elif verb == KILL and number in self._alive:
            _end_group(number)
        elif verb == PRELOAD:
            name = self._control.recv(number, socket.MSG_WAITALL).decode()
            worker_calls.load(name)  # if that fails, the worker that needs it says why
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
            os.setpgid(pid, pid)  # here, too: it may be ended before it does so itself
        self._alive.add(pid)
        self._control.sendall(REPORT.pack(STARTED, pid, 0))

    def _reap(self) -> None:
        while self._alive:
            # its group is ended first: once it is waited for, its id may be another process's
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return
            _end_group(ended.si_pid)
            self._report_exit(*os.waitpid(ended.si_pid, 0))

    def _report_exit(self, pid: int, status: int) -> None:
        self._alive.discard(pid)
        self._control.sendall(REPORT.pack(ENDED, pid, os.waitstatus_to_exitcode(status)))


def _end_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _work(connection: socket.socket) -> None:
    """Run a worker: answer requests until the connection is closed."""
    os.setpgid(0, 0)  # a group of its own, so that what it starts ends with it
    _die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # not through a file: that would read ahead what belongs to the event loop
    first = _message(lambda size: connection.recv(size, socket.MSG_WAITALL))
    if first is None:
        return
    handshake: Handshake = pickle.loads(first)  # noqa: S301 (our parent's)
    sys.path[:] = handshake.path
    if handshake.environ != dict(os.environ):
        os.environ.clear()
        os.environ.update(handshake.environ)
    if handshake.overlaps:
        asyncio.run(_overlapping(connection))
    with connection.makefile("rb") as stream:
        _one_by_one(connection, stream.read)


def _die_with_parent() -> None:
    """End with the fork server even inside a call of a C library, where the system can do that."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _message(read: _Read) -> bytes | None:
    head = read(LENGTH_PREFIX.size)
    if len(head) < LENGTH_PREFIX.size:
        return None
    return read(LENGTH_PREFIX.unpack(head)[0])


def _one_by_one(connection: socket.socket, read: _Read) -> None:
    while (message := _message(read)) is not None:
        request = _REQUEST.decode(message)
        if request.verb == "load":
            outcomes: list[bytes] | bytes = worker_calls.load(request.target)
        else:
            outcomes = worker_calls.answer_many(request.target, request.calls)
        connection.sendall(framed(WorkerReply(request.number, outcomes)))


async def _overlapping(connection: socket.socket) -> None:
    """Answer requests of asynchronous functions, all at once on this loop."""
    connection.settimeout(0)
    reader, writer = await asyncio.open_connection(sock=connection)
    calls: dict[int, asyncio.Task[None]] = {}

    async def answer(request: WorkerRequest) -> None:
        outcomes = await worker_calls.answer_one(request.target, request.calls[0])
        writer.write(framed(WorkerReply(request.number, outcomes)))

    def handle(request: WorkerRequest) -> None:
        if request.verb == "load":
            writer.write(framed(WorkerReply(request.number, worker_calls.load(request.target))))
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
            handle(_REQUEST.decode(await reader.readexactly(LENGTH_PREFIX.unpack(head)[0])))
    os._exit(0)  # its parent is gone: what still runs has no caller


def fork_server_argv(control_fd: int, path: list[str]) -> list[str]:
    """The command line of a fork server with the import path of this process.

    Args:
        control_fd: the inherited file descriptor of the control connection.
        path: ``sys.path``.
    """
    code = (
        "import sys; sys.path[:] = sys.argv[2:]; "
        "from zerowait.scorers.worker_process import run_fork_server; "
        "run_fork_server(int(sys.argv[1]))"
    )
    return [sys.executable, "-c", code, str(control_fd), *path]


def reply_decoder() -> msgspec.msgpack.Decoder[Any]:
    """A decoder of `WorkerReply`."""
    return msgspec.msgpack.Decoder(WorkerReply)
