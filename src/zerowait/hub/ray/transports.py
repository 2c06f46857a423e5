"""How a session with a hub's actor is held: over a connection, or by calls where there is none."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeAlias, TypeVar

from zerowait.hub.rpc.codec import Pickles, encoded_parts
from zerowait.hub.rpc.connection import SECRET_CHARS, RpcAddress, RpcConnection, connected
from zerowait.hub.rpc.pending_calls import RpcTransport
from zerowait.hub.rpc.sessions import HEARTBEAT_S, CallResult

T = TypeVar("T")
R = TypeVar("R")


AwaitAnswer: TypeAlias = Callable[..., Awaitable[Any]]
"""Waits for a call's answer, and for so many seconds more than for others."""


class ActorCallTransport(Generic[T, R]):
    """See `zerowait.hub.rpc.pending_calls.Way`.

    Args:
        actor: of the hub. name: of the session.
        answer: see there.
        dumps: pickles what is handed in.
    """

    def __init__(self, actor: Any, name: str, answer: AwaitAnswer, *, dumps: Pickles) -> None:
        self._dumps = dumps
        self._actor = actor
        self._name = name
        self._answer = answer
        self.over = False
        """Whether the hub ended the session."""

    async def submit(self, items: list[tuple[int, T]], given_up: list[int]) -> bool:
        """Hand in and give up; False when the session is over."""
        parcel = encoded_parts(items, given_up, dumps=self._dumps)
        known: bool = await self._answer(self._actor.submit.remote(self._name, parcel))
        self.over = self.over or not known
        return known

    async def collect(self) -> list[CallResult[R]] | None:
        """What has come, or nothing, as a sign of life; None when the session is over."""
        call = self._actor.collect.remote(self._name)
        results: list[CallResult[R]] | None = await self._answer(call, more_s=HEARTBEAT_S)
        self.over = self.over or results is None
        return results


_log = logging.getLogger(__name__)


class TransportSelection:
    """From one process to one actor.

    Args:
        silence_s: how long the actor may say nothing over a connection.
    """

    def __init__(self, *, silence_s: float) -> None:
        self._silence_s = silence_s
        self._doubted: RpcAddress | None = None
        self._avoided: RpcAddress | None = None

    @asynccontextmanager
    async def session(
        self, actor: Any, config: str, shards: int | None, after: str, *, answer: AwaitAnswer
    ) -> AsyncGenerator[tuple[str, RpcTransport[Any, Any]], None]:
        """The name of a new session, and how it is held.

        See `HubActor.join` for `config`, `shards` and `after`, `ActorCallTransport` for `answer`.

        A door behind which nobody was heard is tried once: an actor that was started again has
        another.
        """
        import ray

        name = secrets.token_hex(SECRET_CHARS // 2)
        dumps = ray.cloudpickle.dumps
        door: RpcAddress | None = await answer(actor.join.remote(config, name, shards, after))
        channel: RpcConnection[Any, Any] | None = None
        over = False
        try:
            if door is not None and door == self._doubted:
                self._avoid(door)  # it was not the hub's end that cut the connection
            if door is not None and door != self._avoided:
                channel = await connected(
                    door, name, dumps=dumps, beat_s=HEARTBEAT_S, silence_s=self._silence_s
                )
                if channel is None:
                    self._avoid(door)
            way: RpcConnection[Any, Any] | ActorCallTransport[Any, Any]
            way = channel or ActorCallTransport(actor, name, answer, dumps=dumps)
            yield name, way
            over = way.over
            if channel is not None and not channel.heard:
                self._doubted = door
        finally:
            if channel is not None:
                channel.close()
            if not over:
                actor.leave.remote(name)

    def _avoid(self, door: RpcAddress) -> None:
        self._doubted, self._avoided = None, door
        _log.warning(
            "no connection to the hub at %s:%d lasts, so rows go there by calls of its actor, "
            "which costs more CPU time",
            door.host,
            door.port,
        )
