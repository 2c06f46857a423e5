"""What belongs together: coroutines of one caller, a list's rows, and siblings in it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

from zerowait.errors import ClosedError
from zerowait.types import Sample

T = TypeVar("T")

_BEGUN: Final = 16
_EACH: Final = 4
_CANCELLED: Final = "something that was waited for was cancelled from elsewhere"


async def side_by_side(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of `works`, in order; the first error ends the rest and is raised as itself."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except* BaseException as errors:  # noqa: BLE001 - one cause says more than a group of them
        raise first_of(errors) from None
    return [task.result() for task in tasks]


async def worked_off(
    items: Iterable[T], one: Callable[[T], Coroutine[Any, Any, None]], *, at_once: int
) -> None:
    """Do `one` for every item, in order, in up to `at_once` tasks, of which some begin each turn.

    A task goes on to the next item, so that only those who wait need a task each. What is done
    without waiting keeps nobody waiting: a turn of the loop is for a few items.

    Raises:
        ClosedError: an item ended by a cancellation that nobody here asked for. A group of tasks
            takes that for an end like any other, and the item would be missing without a word.
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
            if len(todo) % _EACH == 0:
                resting += 1
                await asyncio.sleep(0)
                resting -= 1

    async with asyncio.TaskGroup() as tasks:
        count = 0
        while todo and count < at_once:
            for _ in range(min(_BEGUN - resting, len(todo), at_once - count)):
                tasks.create_task(work())
                count += 1
            await asyncio.sleep(0)  # to connect takes some turns, and nothing is sent before


def first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first single error in a group of them."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def group_by_group(rows: Sequence[Sample]) -> list[int]:
    """The rows' indices with siblings side by side.

    A bounded window then never splits a group into those who wait and those who cannot start.
    """
    first: dict[str, int] = {}
    keys = []
    for index, row in enumerate(rows):
        keys.append(index if row.group is None else first.setdefault(row.group, index))
    return sorted(range(len(rows)), key=keys.__getitem__)
