"""verl's trainer as a subprocess: start it, read its output line by line, interrupt it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from zerowait.verl.launch.log import LOG, TrainerLog

ROLLOUTS: Final = "rollouts"
VALIDATION: Final = "validation"
_STEP: Final = re.compile(r"\bstep:(\d+) - ")
_MESSAGE: Final = re.compile(r"\bzerowait: (.+)")
_KILL_AFTER_S: Final = 20.0


def run_trainer(
    command: list[str],
    *,
    env: Mapping[str, str],
    folder: Path,
    on_step: Callable[[int], None],
    tell: Callable[[str], None] = lambda _: None,
) -> int:
    """Run verl's trainer to its end; returns its exit code.

    An interrupt (Ctrl-C) is passed on to the trainer, which is killed if it has not ended 20 s
    later, or at a second interrupt.

    Args:
        command: overrides for ``verl.trainer.main_ppo``.
        env: environment variables; those of this process win.
        folder: gets ``train.log``, ``rollouts/`` and ``validation/``, for their owner only.
        on_step: called with the number of each finished step.
        tell: called with each message of zerowait in the trainer's output, and, when the training
            failed on a full disk, with what could not be written.
    """
    # for their owner only: verl's dumps and its log quote prompts and responses
    for path in (folder, folder / ROLLOUTS, folder / VALIDATION):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with TrainerLog(folder / LOG) as log:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter, no shell
            [sys.executable, "-m", "verl.trainer.main_ppo", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={"PYTHONUNBUFFERED": "1", **env, **os.environ},
            start_new_session=True,  # so that an interrupt reaches it once, through us
        )
        assert process.stdout is not None  # noqa: S101 - PIPE
        try:
            for step in _steps(process.stdout, log.write, tell):
                on_step(step)
            code = process.wait()
            disk_full = log.disk_full() if code else None
            if disk_full is not None:
                tell(disk_full)
            return code
        finally:
            _interrupt(process, tell)
            process.stdout.close()


def ending(code: int) -> str:
    """How a trainer with this exit code ended, for the terminal.

    >>> ending(1)
    'ended with exit code 1'
    >>> ending(-15)
    'was ended by SIGTERM'
    >>> ending(-9)
    'was killed (SIGKILL), as Linux does when memory runs out'
    """
    if code >= 0:
        return f"ended with exit code {code}"
    if code == -signal.SIGKILL:
        return "was killed (SIGKILL), as Linux does when memory runs out"
    names = {-each.value: each.name for each in signal.Signals}
    return f"was ended by {names.get(code, f'signal {-code}')}"


def _steps(
    lines: Iterable[str], write: Callable[[str], Any], tell: Callable[[str], None]
) -> Iterable[int]:
    """The number of each finished step in the trainer's output, of which every line is logged."""
    for line in lines:
        write(line)
        message = _MESSAGE.search(line)
        if message:
            tell(message.group(1))
        found = _STEP.search(line)
        if found:
            yield int(found.group(1))


def _interrupt(process: subprocess.Popen[str], tell: Callable[[str], None]) -> None:
    """End the trainer's process group, if it still runs: SIGINT, and SIGKILL after 20 s.

    A second interrupt meanwhile kills it at once, so that nothing is left behind.
    """
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGINT)
    try:
        tell(f"verl has {_KILL_AFTER_S:.0f} s to end; a second interrupt ends it at once")
        process.wait(_KILL_AFTER_S)
    except subprocess.TimeoutExpired:
        pass  # killed below
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
