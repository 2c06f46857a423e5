"""One worker process: how it is started, and how it is ended with everything it started."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from pebble import ProcessPool

T = TypeVar("T")

_START_TIMEOUT_S = 60.0
_SETTLING_CALLS = 16


@dataclass(frozen=True)
class Worker:
    """A pebble pool of one process."""

    pool: ProcessPool
    process: BaseProcess

    def stop(self) -> None:
        """End the process and everything it started; blocks until it is gone."""
        if self.process.pid is not None:
            # The worker leads a group of its own, so that its own children end with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.pool.stop()
        self.pool.join()

    def resident_bytes(self) -> int:
        """The memory that the process holds; 0 where that cannot be told."""
        try:
            pages = Path(f"/proc/{self.process.pid}/statm").read_bytes().split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Growth:
    """Tells a worker that leaks from one that has loaded a model.

    Args:
        most_bytes: growth beyond the size that the worker had after its first calls.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._calls = 0
        self._settled_bytes = 0

    def leaks(self, worker: Worker) -> bool:
        """Whether `worker`, which has answered once more, has grown too much."""
        self._calls += 1
        if self._calls > _SETTLING_CALLS:
            return worker.resident_bytes() - self._settled_bytes > self._most_bytes
        if self._calls == _SETTLING_CALLS:
            self._settled_bytes = worker.resident_bytes()
        return False


def start_worker() -> Worker:
    """A running worker; blocks until it is up, and raises whatever is in the way of that."""
    from pebble import ProcessPool

    started: list[BaseProcess] = []
    pool = ProcessPool(max_workers=1, initializer=_begin, context=_context(started))
    try:
        pool.schedule(os.getpid).result(timeout=_START_TIMEOUT_S)
    except BaseException:
        pool.stop()
        pool.join()
        raise
    return Worker(pool, started[-1])


def _begin() -> None:
    """First thing in a worker: be easy to end, with all children, and do not outlive the parent."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setpgrp()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def in_time(seconds: float, function: Callable[..., T], *arguments: Any) -> T:
    """What `function` returns, in a worker, which ends if that takes longer.

    The parent ends a late worker itself. This is for the one whose parent was killed while it
    computes within one call of a C library: no Python runs there that could see it, but the
    watchdog of `faulthandler`, a thread that needs no interpreter.
    """
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - a file that cannot be missing
        faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
        try:
            return function(*arguments)
        finally:
            faulthandler.cancel_dump_traceback_later()


def _end_with_parent() -> None:
    from multiprocessing import connection, parent_process

    if (parent := parent_process()) is not None:
        connection.wait([parent.sentinel])
        os.killpg(0, signal.SIGKILL)


def _context(started: list[BaseProcess]) -> SimpleNamespace:
    """What pebble asks of multiprocessing; the processes it makes are noted in `started`."""
    from multiprocessing import get_context

    spawn = get_context("spawn")

    def process(**given: Any) -> BaseProcess:
        made = spawn.Process(**given)
        vars(made)["_Popen"] = _spawn_without_main
        started.append(made)
        return made

    parts = {name: getattr(spawn, name) for name in ("Pipe", "RLock", "get_start_method")}
    return SimpleNamespace(Process=process, **parts)


def _spawn_without_main(process: BaseProcess) -> Any:
    """Spawns `process` like multiprocessing does, but without importing the parent's `__main__`.

    A script without a main guard would run again in every worker, and a training script would
    import its whole framework there. The standard library has no switch for it.
    """
    from multiprocessing import popen_spawn_posix, spawn

    def preparation(name: str) -> dict[str, Any]:
        data = spawn.get_preparation_data(name)
        return {key: value for key, value in data.items() if not key.startswith("init_main_")}

    quiet = SimpleNamespace(**{**vars(spawn), "get_preparation_data": preparation})
    launch = popen_spawn_posix.Popen._launch.__code__  # type: ignore[attr-defined]  # noqa: SLF001
    methods = {"_launch": FunctionType(launch, {**vars(popen_spawn_posix), "spawn": quiet})}
    return type("Popen", (popen_spawn_posix.Popen,), methods)(process)
