"""Carries what is posted at a desk to a hub, and what comes of it back."""

from __future__ import annotations

import asyncio
from typing import Protocol, TypeVar

from zerowait.hub.desk import Desk
from zerowait.hub.sessions import Result

T = TypeVar("T")
R = TypeVar("R")


class Way(Protocol[T, R]):
    """How a session with a hub is held."""

    async def submit(self, items: list[tuple[int, T]], given_up: list[int], /) -> bool:
        """Hand in and give up; False when the session is over."""
        ...

    async def collect(self) -> list[Result[R]] | None:
        """What has come, or nothing, as a sign of life; None when the session is over."""
        ...


async def converse(way: Way[T, R], desk: Desk[T, R]) -> None:
    """Hand in and collect until nobody has waited for a while, or the session is over.

    Raises:
        As `way` does.
    """
    tasks = {asyncio.create_task(_write(way, desk)), asyncio.create_task(_read(way, desk))}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _write(way: Way[T, R], desk: Desk[T, R]) -> None:
    """Hands in what is posted, until the session is over."""
    while await way.submit(*await desk.batch()):
        pass


async def _read(way: Way[T, R], desk: Desk[T, R]) -> None:
    """Collects until nobody has waited for a while, or the session is over."""
    while (results := await way.collect()) is not None and (results or desk.waiting):
        desk.settle(results)
