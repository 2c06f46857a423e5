"""Event-loop lag: how late callbacks run, and which function blocked the loop."""

from __future__ import annotations

import asyncio
import os
import sys
import sysconfig
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

from zerowait.engine.monitor.stats import quantile
from zerowait.events import Listener, LoopLagged

_PROBE_EVERY_S: Final = 0.25
_LATE_S: Final = 0.5
_LAGS_KEPT: Final = 2400
_STDLIB: Final = sysconfig.get_paths()["stdlib"] + os.sep
_PACKAGES: Final = os.sep + "site-packages" + os.sep


class LoopLagMonitor:
    """Measures the lag of the loop on which it is started, from a thread of its own.

    The thread asks the loop four times a second to run a probe. A late probe becomes a `LoopLagged`
    event as soon as the loop runs again; until then the thread samples the stack of the loop's
    thread, so that `blocked_by` is known even if the loop never runs again. It measures real time,
    also under a virtual clock, where it schedules nothing.

    Args:
        listener: gets the events, on the loop.
        on_probe: called with every probe, on the loop.
        every_s: seconds between two probes.
        late_s: a probe that runs later than this is an event.

    Attributes:
        blocked_by: the function that blocked the loop last, or blocks it now; empty for none.
    """

    def __init__(
        self,
        listener: Listener,
        *,
        on_probe: Callable[[], None] = lambda: None,
        every_s: float = _PROBE_EVERY_S,
        late_s: float = _LATE_S,
    ) -> None:
        self._listener = listener
        self._on_probe = on_probe
        self._every_s = every_s
        self._late_s = late_s
        self._lags_s: deque[float] = deque(maxlen=_LAGS_KEPT)
        self._depth = 0
        self._blocker = ""
        self._ran = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.blocked_by = ""

    @property
    def lag_p99_s(self) -> float:
        """The 99th percentile of the lag in seconds, over about the last ten minutes."""
        return quantile(sorted(self._lags_s.copy()), 0.99)

    def start(self) -> None:
        """Start to probe the running loop."""
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(
            target=self._probe_regularly,
            args=(loop, threading.get_ident()),
            name="zerowait-loop-lag",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Idempotent."""
        self._stopped.set()
        self._ran.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _probe_regularly(self, loop: asyncio.AbstractEventLoop, ident: int) -> None:
        while not self._stopped.wait(self._every_s):
            self._ran.clear()
            if self._stopped.is_set():
                return  # `stop` waits for us, and the probe would wait for it
            try:
                loop.call_soon_threadsafe(self._probe, time.monotonic())
            except RuntimeError:
                return  # the loop was closed without us
            while not self._ran.wait(self._late_s):
                if loop.is_closed():
                    return
                self._blocker = self._blocking_function(ident) or self._blocker
                self.blocked_by = self._blocker or self.blocked_by

    def _probe(self, asked_at: float) -> None:
        lag_s = time.monotonic() - asked_at
        self._lags_s.append(lag_s)
        self._depth = sum(1 for _ in _outwards(sys._getframe())) - 1  # noqa: SLF001
        where, self._blocker = self._blocker, ""
        self._ran.set()
        if lag_s >= self._late_s and not self._stopped.is_set():
            self._listener(LoopLagged(lag_s=lag_s, where=where))
        self._on_probe()

    def _blocking_function(self, ident: int) -> str:
        """The function that runs on the loop's thread now; empty when the loop is idle."""
        frame = sys._current_frames().get(ident)  # noqa: SLF001 - the documented way to look
        frames = [] if frame is None else list(_outwards(frame))
        own = frames[: max(0, len(frames) - self._depth)] if self._depth else frames
        if not own:
            return ""
        return _name(next((frame for frame in own if not _is_stdlib(frame)), own[0]))


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_stdlib(frame: FrameType) -> bool:
    """Whether the frame is the standard library's; the frame that called into it says more."""
    file = frame.f_code.co_filename
    return file.startswith("<frozen") or (file.startswith(_STDLIB) and _PACKAGES not in file)


def _name(frame: FrameType) -> str:
    code = frame.f_code
    module = frame.f_globals.get("__name__", "?")
    return f"{module}.{code.co_qualname} ({os.path.basename(code.co_filename)}:{frame.f_lineno})"  # noqa: PTH119
