"""A wait that can be ended from outside, without cancelling the task for good."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class CancelScope:
    """A part of a task that `end` cancels, after which the task goes on behind it.

    It does what rescheduling an `asyncio.timeout` does, at a fraction of the cost. A cancellation
    from elsewhere goes on as such. Used as a ``with`` block in the running task; or made for
    another task that waits inside such a part, which then calls `leave` at its end.

    Args:
        task: the task; None: the one that runs now.
        before: its pending cancellations when the part began; None: those of now.
    """

    __slots__ = ("_before", "_handle", "_task", "ended")

    def __init__(self, task: asyncio.Task[object] | None = None, before: int | None = None) -> None:
        task = asyncio.current_task() if task is None else task
        if task is None:
            raise RuntimeError("a scope belongs to a task")
        self.ended = False
        self._task = task
        self._before = task.cancelling() if before is None else before
        self._handle: asyncio.Handle | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return self.leave(error)

    def end(self) -> None:
        """Cancel the part, unless what it waits for comes first."""
        if self._handle is None:
            self._handle = self._task.get_loop().call_soon(self._cancel)

    def leave(self, error: BaseException | None) -> bool:
        """The part is over. Returns whether `error` is our own cancellation, which ends here.

        Args:
            error: what the part raised; None if nothing.
        """
        if self._handle is None:
            return False
        self._handle.cancel()
        if not self.ended:
            return False
        alone = self._task.uncancel() <= self._before
        self.ended = alone and isinstance(error, asyncio.CancelledError)
        return self.ended

    def _cancel(self) -> None:
        self.ended = True
        self._task.cancel()
