"""A wait that others may end."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class CancelScope:
    """What is awaited in its ``with`` block can be ended by others, who call `end`.

    It does what rescheduling an `asyncio.timeout` does, at a fraction of the cost; every judgement
    enters one or two. A cancellation that comes from elsewhere goes on as such.

    Args:
        ended: whether the block was left because of `end`, once it is left.
    """

    __slots__ = ("_before", "_handle", "_task", "ended")

    _task: asyncio.Task[object]

    def __init__(self) -> None:
        self.ended = False
        self._before = 0
        self._handle: asyncio.Handle | None = None

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a scope is entered inside a task")
        self._task = task
        self._before = task.cancelling()
        return self

    def end(self) -> None:
        """Leave the block, unless what is awaited in it comes first."""
        if self._handle is None:
            self._handle = self._task.get_loop().call_soon(self._cancel)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if self._handle is None:
            return False
        self._handle.cancel()
        if not self.ended:
            return False
        alone = self._task.uncancel() <= self._before
        self.ended = alone and kind is asyncio.CancelledError
        return self.ended

    def _cancel(self) -> None:
        self.ended = True
        self._task.cancel()
