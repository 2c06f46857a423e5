"""Concurrent tasks: a few coroutines at once, or a batch of items in a bounded number of tasks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from zerowait.errors import ClosedError

T = TypeVar("T")

_STARTED_PER_TURN: Final = 16
_ITEMS_PER_TURN: Final = 4
_CANCELLED: Final = "something that was waited for was cancelled from elsewhere"


async def side_by_side(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of `works`, in order; the first error cancels the rest and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except* BaseException as errors:  # noqa: BLE001 - one cause says more than a group of them
        raise first_of(errors) from None
    return [task.result() for task in tasks]


async def run_all(
    items: Iterable[T], one: Callable[[T], Coroutine[Any, Any, None]], *, at_once: int
) -> None:
    """Await ``one(item)`` for every item, in order, in up to `at_once` tasks.

    A task goes on to the next item, so that only items that wait need a task each. Each turn of the
    loop starts a few tasks and a few items, so that items that never wait do not block the loop.

    Args:
        items: to work on.
        one: the work for one item.
        at_once: the largest number of tasks.

    Raises:
        ClosedError: an item was cancelled from elsewhere. A task group takes that for an ordinary
            end, and the item's result would be missing without a word.
    """
    todo = deque(items)
    resting = 0

    async def work() -> None:
        nonlocal resting
        while todo:
            try:
                await one(todo.popleft())
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                raise ClosedError(_CANCELLED) from None
            if len(todo) % _ITEMS_PER_TURN == 0:
                resting += 1
                await asyncio.sleep(0)
                resting -= 1

    async with asyncio.TaskGroup() as tasks:
        count = 0
        while todo and count < at_once:
            for _ in range(min(_STARTED_PER_TURN - resting, len(todo), at_once - count)):
                tasks.create_task(work())
                count += 1
            await asyncio.sleep(0)  # to connect takes some turns, and nothing is sent before


def first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first single error in a group of them."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
