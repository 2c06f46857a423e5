"""A session with a hub that is held by calls of its actor: where it cannot be connected to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeAlias, TypeVar

from zerowait.hub.actor import BEAT_S
from zerowait.hub.parcels import Pickles, packed
from zerowait.hub.sessions import Result

T = TypeVar("T")
R = TypeVar("R")


Answer: TypeAlias = Callable[..., Awaitable[Any]]
"""Waits for a call's answer, and for so many seconds more than for others."""


class Calls(Generic[T, R]):
    """See `zerowait.hub.courier.Way`.

    Args:
        actor: of the hub. name: of the session.
        answer: see there.
        dumps: pickles what is handed in.
    """

    def __init__(self, actor: Any, name: str, answer: Answer, *, dumps: Pickles) -> None:
        self._dumps = dumps
        self._actor = actor
        self._name = name
        self._answer = answer
        self.over = False
        """Whether the hub ended the session."""

    async def submit(self, items: list[tuple[int, T]], given_up: list[int]) -> bool:
        """Hand in and give up; False when the session is over."""
        parcel = packed(items, given_up, dumps=self._dumps)
        known: bool = await self._answer(self._actor.submit.remote(self._name, parcel))
        self.over = self.over or not known
        return known

    async def collect(self) -> list[Result[R]] | None:
        """What has come, or nothing, as a sign of life; None when the session is over."""
        call = self._actor.collect.remote(self._name)
        results: list[Result[R]] | None = await self._answer(call, more_s=BEAT_S)
        self.over = self.over or results is None
        return results
