"""What is waited for when nothing moves any more, and where."""

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

_MORE_S: Final = 60.0
_MOST_NAMED: Final = 20
_MOST_FRAMES: Final = 6
_DEEPEST: Final = 100
_LOG = logging.getLogger(__name__)


class _Wait(NamedTuple):
    component: str
    sample: Sample
    since_s: float


class PendingWork:
    """The components that are being found for samples now, the longest wait first."""

    def __init__(self) -> None:
        self._waits: dict[int, _Wait] = {}
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._waits)

    def enter(self, component: str, sample: Sample) -> int:
        """The number under which it is known until `leave`."""
        number = next(self._numbers)
        self._waits[number] = _Wait(component, sample, time.monotonic())
        return number

    def leave(self, number: int) -> None:
        """It is found, or nobody wants it any more."""
        del self._waits[number]

    def lines(self, now_s: float) -> Iterator[str]:
        """One for each of those that wait longest: the component, the sample and the time."""
        for wait in itertools.islice(self._waits.values(), _MOST_NAMED):
            yield f"{wait.component} of {_named(wait.sample)}: {now_s - wait.since_s:.0f} s"
        if len(self._waits) > _MOST_NAMED:
            yield f"and {len(self._waits) - _MOST_NAMED} more"


class StallWatchdog:
    """Tells once, when components are waited for and nothing has happened for a while.

    It measures real time, and schedules nothing: whoever has a regular reason to run calls `look`.

    Args:
        lanes: what the judges' requests share.
        listener: gets the event.
        timeout_s: of one attempt; nothing need happen for so long, and a minute more.
        wall_s: seconds from any fixed moment.
    """

    def __init__(
        self,
        lanes: EndpointStates,
        listener: Listener,
        timeout_s: float,
        *,
        wall_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pending = PendingWork()
        self._lanes = lanes
        self._listener = listener
        self._quiet_s = timeout_s + _MORE_S
        self._wall_s = wall_s
        self._told = False
        self._moved_s = wall_s()

    def __call__(self, event: Event) -> None:
        """Something happened, unless the event only says that nothing did."""
        if not isinstance(event, (NothingMoves, LoopLagged)):
            self._told = False
            self._moved_s = self._wall_s()

    def look(self) -> None:
        """Look whether anything moves; on the loop whose tasks are waited for."""
        now_s = self._wall_s()
        if not self.pending:
            self._moved_s = now_s
        elif not self._told and now_s - self._moved_s >= self._quiet_s:
            self._told = True
            event = NothingMoves(
                for_s=now_s - self._moved_s, pending=len(self.pending), dump=self._dump()
            )
            _LOG.warning("nothing has moved for %.0f s\n%s", event.for_s, event.dump)
            self._listener(event)

    def _dump(self) -> str:
        lanes = self._lanes
        counts = (
            f"{len(self.pending)} components are waited for; {lanes.in_flight} requests are in "
            f"flight, {lanes.waiting} in line, the limit is {lanes.limit}"
        )
        parts = [
            counts,
            *self.pending.lines(time.monotonic()),
            *_tasks(),
            *_threads(),
        ]
        return "\n".join(parts)


def _tasks() -> Iterator[str]:
    """Where the tasks of the running loop wait, those at the same place together."""
    places = Counter(_chain(task) for task in asyncio.all_tasks())
    for place, count in places.most_common(_MOST_NAMED):
        yield f"{count} task{'s' * (count > 1)}: {place}"


def _chain(task: asyncio.Task[object]) -> str:
    """The functions that a task is in, the outermost first: a task's own stack shows only one."""
    names: list[str] = []
    waiting: object = task.get_coro()
    while len(names) < _DEEPEST:
        frame = getattr(waiting, "cr_frame", None)
        if not isinstance(frame, FrameType):
            break
        names.append(_place(frame, frame.f_lineno))
        waiting = getattr(waiting, "cr_await", None)
    return " > ".join(names[-_MOST_FRAMES:]) or task.get_name()


def _threads() -> Iterator[str]:
    """Where each thread of the process is."""
    for frame in sys._current_frames().values():  # noqa: SLF001 - the documented way to look
        inner = list(traceback.walk_stack(frame))[:_MOST_FRAMES]
        yield "1 thread: " + " > ".join(_place(f, line) for f, line in reversed(inner))


def _place(frame: FrameType, line: int) -> str:
    code = frame.f_code
    return f"{code.co_qualname} ({os.path.basename(code.co_filename)}:{line})"  # noqa: PTH119


def _named(sample: Sample) -> str:
    if sample.id:
        return f"sample {sample.id!r}"
    return f"a sample of group {sample.group!r}" if sample.group is not None else "a sample"
