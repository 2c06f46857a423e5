"""Stall watchdog: reports what is waited for, and where, when nothing happens any more."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final, NamedTuple

from zerowait.client import EndpointStates
from zerowait.events import Event, Listener, LoopLagged, NothingMoves
from zerowait.types import Sample

_EXTRA_S: Final = 60.0
_MOST_LINES: Final = 20
_MOST_FRAMES: Final = 6
_MOST_AWAITS: Final = 100
_LOG = logging.getLogger(__name__)


class _Pending(NamedTuple):
    component: str
    sample: Sample
    since_s: float


class PendingWork:
    """The components that are being computed now, the longest wait first."""

    def __init__(self) -> None:
        self._pending: dict[int, _Pending] = {}
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._pending)

    def enter(self, component: str, sample: Sample) -> int:
        """Note that a component of a sample is being computed; returns its ticket for `leave`."""
        number = next(self._numbers)
        self._pending[number] = _Pending(component, sample, time.monotonic())
        return number

    def leave(self, number: int) -> None:
        """Note that it is known, or no caller waits for it any more."""
        del self._pending[number]

    def lines(self, now_s: float) -> Iterator[str]:
        """One line for each of the longest waits: component, sample and seconds."""
        for each in itertools.islice(self._pending.values(), _MOST_LINES):
            yield f"{each.component} of {_sample_name(each.sample)}: {now_s - each.since_s:.0f} s"
        if len(self._pending) > _MOST_LINES:
            yield f"and {len(self._pending) - _MOST_LINES} more"


class StallWatchdog:
    """An event listener that reports once when work is pending and no event comes for too long.

    It measures real time and schedules nothing: the engine calls `check` with each probe of its
    `LoopLagMonitor`.

    Args:
        endpoints: states of the judges' endpoints, for the report.
        listener: gets a `NothingMoves` event.
        timeout_s: of one attempt. A stall is that long without an event, and a minute more.
        wall_s: a clock, in seconds.
    """

    def __init__(
        self,
        endpoints: EndpointStates,
        listener: Listener,
        timeout_s: float,
        *,
        wall_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pending = PendingWork()
        self._endpoints = endpoints
        self._listener = listener
        self._stall_s = timeout_s + _EXTRA_S
        self._wall_s = wall_s
        self._reported = False
        self._last_event_s = wall_s()

    def __call__(self, event: Event) -> None:
        """Note that something happened, unless the event only says that nothing did."""
        if not isinstance(event, (NothingMoves, LoopLagged)):
            self._reported = False
            self._last_event_s = self._wall_s()

    def check(self) -> None:
        """Report a stall, if there is one; called on the loop whose tasks are pending."""
        now_s = self._wall_s()
        if not self.pending:
            self._last_event_s = now_s
        elif not self._reported and now_s - self._last_event_s >= self._stall_s:
            self._reported = True
            event = NothingMoves(
                for_s=now_s - self._last_event_s, pending=len(self.pending), dump=self._dump()
            )
            _LOG.warning("nothing has moved for %.0f s\n%s", event.for_s, event.dump)
            self._listener(event)

    def _dump(self) -> str:
        endpoints = self._endpoints
        counts = (
            f"{len(self.pending)} components are waited for; {endpoints.in_flight} requests are in "
            f"flight, {endpoints.waiting} in line, the limit is {endpoints.limit}"
        )
        parts = [
            counts,
            *self.pending.lines(time.monotonic()),
            *_tasks(),
            *_threads(),
        ]
        return "\n".join(parts)


def _tasks() -> Iterator[str]:
    """One line per stack at which tasks of the running loop wait, with their number."""
    stacks = Counter(_await_stack(task) for task in asyncio.all_tasks())
    for stack, count in stacks.most_common(_MOST_LINES):
        yield f"{count} task{'s' * (count > 1)}: {stack}"


def _await_stack(task: asyncio.Task[object]) -> str:
    """The functions that a task awaits, the outermost first; `Task.get_stack` shows only one."""
    names: list[str] = []
    waiting: object = task.get_coro()
    while len(names) < _MOST_AWAITS:
        frame = getattr(waiting, "cr_frame", None)
        if not isinstance(frame, FrameType):
            break
        names.append(_location(frame, frame.f_lineno))
        waiting = getattr(waiting, "cr_await", None)
    return " > ".join(names[-_MOST_FRAMES:]) or task.get_name()


def _threads() -> Iterator[str]:
    """One line per thread of the process, with its innermost frames."""
    for frame in sys._current_frames().values():  # noqa: SLF001 - the documented way to look
        inner = list(traceback.walk_stack(frame))[:_MOST_FRAMES]
        yield "1 thread: " + " > ".join(_location(f, line) for f, line in reversed(inner))


def _location(frame: FrameType, line: int) -> str:
    code = frame.f_code
    return f"{code.co_qualname} ({os.path.basename(code.co_filename)}:{line})"  # noqa: PTH119


def _sample_name(sample: Sample) -> str:
    if sample.id:
        return f"sample {sample.id!r}"
    return f"a sample of group {sample.group!r}" if sample.group is not None else "a sample"
