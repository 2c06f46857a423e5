"""Runs a server and ends it, with all that it started, when the process that wanted it is gone.

``python guard.py GRACE_S PROGRAM ARGUMENT...`` imports nothing of zerowait. Its standard input is a
pipe whose other end that process holds, and never writes to: the pipe ends when the process closes
it, or dies, even by SIGKILL. The guard leads a process group of its own, in which the server is.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_POLL_S = 1.0
_PR_SET_PDEATHSIG = 1


def guard() -> int:
    """Run the server; its exit code, where it ends by itself."""
    grace_s, command = float(sys.argv[1]), sys.argv[2:]
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    told: list[int] = []
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    signal.set_wakeup_fd(wake)
    parent = os.getppid()
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def with_us() -> None:  # a guard that is killed itself takes its server along
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    try:
        server = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            preexec_fn=with_us,  # noqa: PLW1509 - there are no threads
        )
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror or error}\n")
        return 127
    wanted = True
    while wanted and not told and server.poll() is None:
        readable, _, _ = select.select([0, woken], [], [], _POLL_S)
        if woken in readable:
            os.read(woken, 4096)
        # a child of the parent's that was forked may hold the pipe open, but is not our parent
        wanted = 0 not in readable and os.getppid() == parent
    code = server.poll()
    _end_group(server, grace_s)
    if code is None:
        return 0
    sys.stderr.write(f"zerowait: the server ended with {_ending(code)}\n")
    return code if code >= 0 else 128 - code


def _end_group(server: subprocess.Popen[bytes], grace_s: float) -> None:
    """Ask everything in the group to end, and kill what has not after `grace_s` seconds."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    until = time.monotonic() + grace_s
    while time.monotonic() < until and (server.poll() is None or _others()):
        time.sleep(0.05)
    if server.poll() is None or _others():
        os.killpg(0, signal.SIGKILL)  # the guard is among them


def _others() -> bool:
    """Whether the group has processes besides this one; False where that cannot be told."""
    group = os.getpgrp()
    try:
        processes = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    except OSError:
        return False
    for process in processes:
        try:
            if process != os.getpid() and os.getpgid(process) == group and not _is_zombie(process):
                return True
        except OSError:
            continue
    return False


def _is_zombie(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_bytes().rpartition(b") ")[2][:1] == b"Z"


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


if __name__ == "__main__":
    sys.exit(guard())
