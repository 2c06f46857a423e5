"""The sandbox on this machine: programs run under a `server.py` that is started once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from zerowait.scorers.code.program import Program, Run, RunEnding
from zerowait.scorers.code.sources import HARNESS, PRELUDE
from zerowait.types import Abstain, FailureKind

_LOG = logging.getLogger(__name__)
_SERVER: Final = Path(__file__).with_name("server.py")
_START_S: Final = 60.0
_END_S: Final = 5.0
_LATE_S: Final = 20.0
_MOST_STARVED: Final = 10
"""The server gives a program so many times its time, at most, on a machine that is busy."""

_MOST_STARTS: Final = 3
_KILLED: Final = 0.95
"""A program that is killed for its processor time is shown with a little less of it."""

_ERROR_BYTES: Final = 1 << 16

_ENVIRONMENT: Final = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",  # noqa: S108 - private in the sandbox
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}

Isolation = Literal["namespaces", "seccomp"]


class _Reply(msgspec.Struct, frozen=True):
    """What the server says: its first message, and one for each program."""

    id: int = -1
    problem: str = ""
    late: bool = False
    code: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    starved: bool = False
    refused: str = ""
    namespaces: bool = False
    missing: list[str] = []


class _Server:
    """One server process, and the programs that it has not told the end of."""

    def __init__(self, process: subprocess.Popen[bytes], engine: socket.socket) -> None:
        self.process = process
        self.engine = engine
        self.first: asyncio.Future[_Reply] = asyncio.get_running_loop().create_future()
        self.running: dict[int, asyncio.Future[_Reply]] = {}
        asyncio.get_running_loop().add_reader(engine.fileno(), self._read)

    @property
    def is_alive(self) -> bool:
        """Whether programs may be sent to it."""
        return self.engine.fileno() >= 0 and self.process.poll() is None

    def _read(self) -> None:
        try:
            message = self.engine.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self.disconnect()
            return
        reply = msgspec.json.decode(message, type=_Reply)
        future = self.first if reply.id < 0 else self.running.pop(reply.id, None)
        if future is not None and not future.done():
            future.set_result(reply)

    def disconnect(self) -> None:
        """Close our end, which ends the server and every program; all that waits is told."""
        if self.engine.fileno() < 0:
            return
        asyncio.get_running_loop().remove_reader(self.engine.fileno())
        self.engine.close()
        for future in (self.first, *self.running.values()):
            if not future.done():
                future.set_result(_Reply(problem="the sandbox server ended"))
        self.running.clear()

    async def send(self, message: dict[str, Any], files: list[int]) -> None:
        """Send a message, with open files."""
        data = msgspec.json.encode(message)
        while True:
            try:
                socket.send_fds(self.engine, [data], files)
            except BlockingIOError:
                await asyncio.sleep(0.002)
            else:
                return


class LocalSandbox:
    """Runs programs on this machine; belongs to one loop.

    Args:
        python: the interpreter of the programs.
        isolation: ``seccomp`` goes without namespaces, as in a container that forbids them.
    """

    def __init__(self, python: str = "", *, isolation: Isolation = "namespaces") -> None:
        self._python = str(Path(python).expanduser()) if python else sys.executable
        self._isolation = isolation
        self._server: _Server | None = None
        self._starting: asyncio.Task[_Server | Abstain] | None = None
        self._numbers = 0
        self._slots: list[int] = []
        self._most_slots = 0
        self._starts = 0
        self._closed = False
        self._has_warned = False
        self.missing: list[str] = []

    async def run(self, program: Program) -> Run | Abstain:
        """What became of `program`; an abstention where it could not be run."""
        server = await self._running_server()
        if isinstance(server, Abstain):
            return server
        run = await self._run(server, program)
        if server.is_alive or self._closed:
            return run
        server = await self._running_server()  # the system has ended it; no program can
        return server if isinstance(server, Abstain) else await self._run(server, program)

    async def aclose(self) -> None:
        """End the server and every program. Idempotent."""
        self._closed = True
        if self._server is not None:
            self._server.disconnect()  # also one that is being started
        if self._starting is not None:
            await asyncio.wait({self._starting})
        await self._end()

    async def _running_server(self) -> _Server | Abstain:
        """The server, started where it does not run; a caller that is cancelled leaves it to it."""
        if self._starting is None:
            if self._closed:
                return Abstain(FailureKind.CANCELLED, "the sandbox is closed")
            if self._server is not None and self._server.is_alive:
                return self._server
            self._starting = asyncio.create_task(self._restart())
        return await asyncio.shield(self._starting)

    async def _restart(self) -> _Server | Abstain:
        try:
            await self._end()
            if self._starts >= _MOST_STARTS:
                return Abstain(FailureKind.CRASHED, "the sandbox server ended again and again")
            self._starts += 1
            return await self._start()
        finally:
            self._starting = None

    async def _end(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.disconnect()
            await _ended(server.process)

    async def _start(self) -> _Server | Abstain:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(0)
        number = theirs.fileno()
        options = msgspec.json.encode(
            {"prelude": PRELUDE, "harness": HARNESS, "isolation": self._isolation}
        ).decode()
        flags = ["-I", "-X", "utf8"]
        command = [self._python, *flags, str(_SERVER), str(number), options]
        try:
            process = subprocess.Popen(  # noqa: S603, ASYNC220 - forks at once, waits for nothing
                command,
                pass_fds=[number],
                env=_ENVIRONMENT,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            return Abstain(FailureKind.CRASHED, f"{self._python} cannot be started: {error}")
        finally:
            theirs.close()
        server = self._server = _Server(process, ours)
        await asyncio.wait({server.first}, timeout=_START_S)
        if not server.first.done() or (problem := _refusal(server.first.result())):
            problem = problem if server.first.done() else f"not started within {_START_S:g} s"
            await self._end()
            return Abstain(FailureKind.CRASHED, f"no sandbox on this machine: {problem}")
        self.missing = server.first.result().missing
        if self.missing and not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "scorer code: programs run with seccomp and limits, but this machine has no %s; "
                "sandbox: {url: ...} runs them elsewhere",
                ", no ".join(self.missing),
            )
        return server

    async def _run(self, server: _Server, program: Program) -> Run | Abstain:
        number = self._numbers = self._numbers + 1
        slot = self._take_slot()
        files: list[int] = []
        source = b"" if program.is_harness else program.source.encode(errors="replace")
        try:
            for content in (source, program.stdin):
                files.append(_file(content))  # noqa: PERF401 - what was opened is closed below
            files += [_file(b""), _file(b"")]
            reply = await self._ask(server, number, slot, program, files)
            output = os.pread(files[2], program.output_bytes + 1, 0)
            error = os.pread(files[3], _ERROR_BYTES, 0)
        finally:
            self._slots.append(slot)
            for file in files:
                os.close(file)
        if reply.problem:
            kind = FailureKind.CANCELLED if self._closed else FailureKind.CRASHED
            return Abstain(kind, f"the sandbox: {reply.problem}")
        self._starts = 0
        return _run_of(program, reply, output, error)

    async def _ask(
        self, server: _Server, number: int, slot: int, program: Program, files: list[int]
    ) -> _Reply:
        ended: asyncio.Future[_Reply] = asyncio.get_running_loop().create_future()
        server.running[number] = ended
        job = {
            "id": number,
            "slot": slot,
            "harness": program.is_harness,
            "cpu_s": program.cpu_s,
            "wall_s": program.wall_s,
            "memory": program.memory_bytes,
            "file": program.output_bytes + 1,
            "folder": program.folder_bytes,
        }
        try:
            await server.send(job, files)
            await asyncio.wait({ended}, timeout=_MOST_STARVED * program.wall_s + _LATE_S)
        except OSError as error:
            return _Reply(problem=f"the sandbox server is gone: {error}")
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                socket.send_fds(server.engine, [msgspec.json.encode({"cancel": str(number)})], [])
            raise
        finally:
            server.running.pop(number, None)
        if ended.done():
            return ended.result()
        server.disconnect()
        return _Reply(problem="the sandbox server does not answer")

    def _take_slot(self) -> int:
        if not self._slots:
            self._most_slots += 1
            return self._most_slots + os.getpid() % 61 * 64
        return self._slots.pop()


def _refusal(first: _Reply) -> str:
    return first.refused or first.problem


def _run_of(program: Program, reply: _Reply, output: bytes, error: bytes) -> Run | Abstain:
    """What became of a program, from how its process ended."""
    if reply.starved:
        why = f"in {reply.wall_s:.0f} s the machine gave it {reply.cpu_s:.1f} s of a processor"
        return Abstain(FailureKind.TIMEOUT, f"a program was not run to its end: {why}")
    if program.is_harness and reply.code == 0:  # it has seen to the time of each test
        ending = RunEnding.FINISHED
    elif len(output) > program.output_bytes:
        ending = RunEnding.TOO_MUCH_OUTPUT
    elif reply.late or reply.cpu_s >= program.cpu_s * (_KILLED if reply.code < 0 else 1):
        ending = RunEnding.OUT_OF_TIME
    elif reply.code == 0:
        ending = RunEnding.FINISHED
    else:
        ending = RunEnding.FAILED
    text = error.decode(errors="replace")
    return Run(ending, output, text, code=reply.code, cpu_s=reply.cpu_s)


def _file(content: bytes) -> int:
    """A file in memory with this content, open at its beginning."""
    file = os.memfd_create("sandbox")
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]
    os.lseek(file, 0, os.SEEK_SET)
    return file


async def _ended(process: subprocess.Popen[bytes]) -> None:
    """Wait for a server whose socket is closed; one that does not end is killed."""
    ends = asyncio.get_running_loop().time() + _END_S
    while process.poll() is None:
        if asyncio.get_running_loop().time() > ends:
            process.kill()
        await asyncio.sleep(0.005)
