"""One server of a judge: started, watched, restarted when it dies, and ended with its owner."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from zerowait.config.serve import ServeSettings
from zerowait.engine.serving.commands import COMMANDS, Listening, check_program

RESTARTS: Final = 5
"""How often a server is restarted until it is given up; forgotten once it has run for a while."""

_STEADY_S: Final = 600.0
_FIRST_PAUSE_S: Final = 1.0
_STARTING_POLL_S: Final = 0.2
_HEALTH_EVERY_S: Final = 20.0  # each is a line in some servers' logs; a death is seen at once
_HEALTH_TIMEOUT_S: Final = 30.0
_SILENT_S: Final = 180.0
_GRACE_S: Final = 10.0
_TAIL_BYTES: Final = 8192
_TAIL_LINES: Final = 15
_GUARD: Final = Path(__file__).with_name("guard.py")
_SECRET: Final = re.compile(r"token$|key$|secret|password", re.IGNORECASE)
_TAKEN: Final = ("address already in use", "couldn't bind", "port is already")

_LOG = logging.getLogger(__name__)


class ServerFailedError(Exception):
    """A server did not start; the message ends with the last lines of its log."""


class ServerPlace(msgspec.Struct, frozen=True):
    """Where a server listens.

    Args:
        url: scheme, host and port.
        model: the only name by which it knows its model, where that is not the configured one.
    """

    url: str
    model: str | None = None


class ServerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What one server serves, and where.

    Args:
        settings: as they are configured.
        title: of the server, for messages and the name of its log.
        weights: see `zerowait.engine.serving.commands.weights_of`.
        name: by which requests name the model.
        host: the address that it listens at.
        port: of it; 0: another free one at each start.
        folder: of its log.
        environment: variables of its process, beside ours.
    """

    settings: ServeSettings
    title: str
    weights: str
    name: str
    host: str = "127.0.0.1"
    port: int = 0
    folder: Path
    environment: Mapping[str, str]


class ServerProcess:
    """Keeps one server running from `start` to `aclose`; belongs to one event loop.

    A server that ends, or answers nothing for three minutes, is restarted after 1, 2, 4, 8 and
    16 s; then it is given up.

    Args:
        plan: what it serves.
    """

    def __init__(self, plan: ServerPlan) -> None:
        self._plan = plan
        self._log = plan.folder / f"{plan.title}.log"
        self._changed = asyncio.Condition()
        self._watching: asyncio.Task[None] | None = None
        self._failure: ServerFailedError | None = None
        self.place: ServerPlace | None = None
        """Where it listens now; None while it does not."""

        self.problem = "it is being started"
        """Why it does not listen."""

    def start(self) -> None:
        """Start the server, and go on; see `wait_changed`.

        Raises:
            MissingError: its program is not installed on this machine.
        """
        program = check_program(self._plan.settings)
        self._watching = asyncio.create_task(self._keep_running(program))

    async def wait_ready(self) -> ServerPlace:
        """Where it listens, once it does for the first time.

        Raises:
            ServerFailedError: it could not be started, or was given up.
        """
        place = await self.wait_changed(None)
        while place is None:
            place = await self.wait_changed(None)
        return place

    async def wait_changed(
        self, known: ServerPlace | None, *, timeout_s: float | None = None
    ) -> ServerPlace | None:
        """Where it listens now, as soon as that is another place than `known`, or at the timeout.

        Raises:
            ServerFailedError: it could not be started, or was given up.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self._failure or self.place != known)
        if self._failure is not None:
            raise self._failure
        return self.place

    async def aclose(self) -> None:
        """End the server and everything that it started. Idempotent."""
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait({watching})

    async def _keep_running(self, program: list[str]) -> None:
        try:
            await self._restart_until_given_up(program)
        except OSError as error:  # its log or its process; callers must not wait for ever
            problem = f"could not be run: {error}"
            _LOG.error("judge server %s %s", self._plan.title, problem)
            self._failure = ServerFailedError(problem)
            await self._say(None, problem)

    async def _restart_until_given_up(self, program: list[str]) -> None:
        failed, was_ready = 0, False
        clock = asyncio.get_running_loop().time
        while True:
            began_s = clock()
            problem = await self._run_once(program)
            was_ready = was_ready or self.place is not None
            await self._say(None, problem)
            if clock() - began_s > _STEADY_S + self._plan.settings.ready_timeout_s:
                failed = 0
            failed += 1
            most = RESTARTS if was_ready else int(self._port_was_taken())
            if failed > most:
                times = f" ({failed} times)" if failed > 1 else ""
                _LOG.error("judge server %s: %s%s; given up", self._plan.title, problem, times)
                self._failure = ServerFailedError(f"{problem}{times}{self._end_of_log()}")
                await self._say(None, f"{problem}{times}, and was given up; its log is {self._log}")
                return
            pause_s = _FIRST_PAUSE_S * 2 ** (failed - 1)
            title = self._plan.title
            _LOG.warning("judge server %s: %s; restarts in %g s", title, problem, pause_s)
            await asyncio.sleep(pause_s)

    async def _run_once(self, program: list[str]) -> str:
        """Run the server until it ends or has to; says why."""
        plan = self._plan
        port = plan.port or free_port(plan.host)
        listening = Listening(model=plan.weights, name=plan.name, host=plan.host, port=port)
        command = [*program, *COMMANDS[plan.settings.engine](plan.settings, listening)]
        host = f"[{plan.host}]" if ":" in plan.host else plan.host
        # what transformers serves has no name but its path
        model = plan.weights if plan.settings.engine == "transformers" else None
        place = ServerPlace(f"http://{host}:{port}", model)
        with self._log.open("ab") as log:
            log.write(f"$ {_shown(command)}\n".encode())
            log.flush()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(_GUARD), str(_GRACE_S), *command),
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # an interrupt at the terminal ends our process first
                env={**os.environ, **plan.environment},
            )
        try:
            return await self._watch(process, place)
        finally:
            await _end(process)

    async def _watch(self, process: asyncio.subprocess.Process, place: ServerPlace) -> str:
        import aiohttp

        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._plan.settings.ready_timeout_s
        timeout = aiohttp.ClientTimeout(total=_HEALTH_TIMEOUT_S)
        ending = asyncio.create_task(process.wait())
        healthy_s = loop.time()
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session:
                while True:
                    if await _answers(session, f"{place.url}/health"):
                        healthy_s = loop.time()
                        if self.place is None and not ending.done():
                            await self._say(place, "")
                    ready = self.place is not None
                    every_s = _HEALTH_EVERY_S if ready else _STARTING_POLL_S
                    await asyncio.wait({ending}, timeout=every_s)
                    if ending.done():
                        return f"ended with {_ending(ending.result())}"
                    if ready and loop.time() - healthy_s > _SILENT_S:
                        return f"answered nothing for {_SILENT_S:g} s"
                    if not ready and loop.time() > until_s:
                        limit_s = self._plan.settings.ready_timeout_s
                        return f"was not ready in {limit_s:g} s (ready_timeout_s)"
        finally:
            ending.cancel()

    async def _say(self, place: ServerPlace | None, problem: str) -> None:
        async with self._changed:
            self.place, self.problem = place, problem
            self._changed.notify_all()

    def _port_was_taken(self) -> bool:
        end = self._end_of_log().lower()
        return any(words in end for words in _TAKEN)

    def _end_of_log(self) -> str:
        """The last lines of the log, below its name."""
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - _TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
            shown = [line for line in lines if line.strip()][-_TAIL_LINES:]
            return "\n".join((f"; the end of {self._log}:", *(f"  {line}" for line in shown)))
        return ""


def _shown(command: Sequence[str]) -> str:
    """A command line without what may be secret in it.

    >>> _shown(["vllm", "serve", "m", "--hf-token", "hf_x", "--port", "1"])
    'vllm serve m --hf-token *** --port 1'
    """
    before = ("", *command)
    return " ".join(
        "***" if _SECRET.search(option) and option.startswith("-") else word
        for option, word in zip(before, command, strict=False)
    )


async def _answers(session: object, url: str) -> bool:
    """Whether a server answers that it is healthy."""
    import aiohttp

    assert isinstance(session, aiohttp.ClientSession)  # noqa: S101 - imported lazily
    try:
        async with session.get(url) as reply:
            return reply.status == 200
    except (aiohttp.ClientError, OSError):  # a TimeoutError is one
        return False


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a server's guard, with it the server, and whatever is left of both."""
    if process.stdin is not None:
        process.stdin.close()
    waiting = asyncio.create_task(process.wait())
    await asyncio.wait({waiting}, timeout=_GRACE_S + 5)
    # a guard that was killed has left its group behind: vLLM's engine outlives its server
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await waiting


def _ending(code: int) -> str:
    """How the guard says that its server ended: by a signal of number `code` - 128, or -`code`."""
    if 0 <= code <= 128:
        return f"exit code {code}"
    return f"signal {code - 128 if code > 0 else -code}"


def free_port(host: str) -> int:
    """A port at `host` that nothing listens at now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
