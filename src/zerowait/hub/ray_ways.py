"""How a session with a hub's actor is held: over a connection, or by calls where there is none."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from zerowait.hub.actor import BEAT_S
from zerowait.hub.channel import SECRET_CHARS, Channel, Door, connected
from zerowait.hub.courier import Way
from zerowait.hub.ray_calls import Answer, Calls

_log = logging.getLogger(__name__)


class Ways:
    """From one process to one actor.

    Args:
        silence_s: how long the actor may say nothing over a connection.
    """

    def __init__(self, *, silence_s: float) -> None:
        self._silence_s = silence_s
        self._doubted: Door | None = None
        self._avoided: Door | None = None

    @asynccontextmanager
    async def session(
        self, actor: Any, config: str, shards: int | None, after: str, *, answer: Answer
    ) -> AsyncGenerator[tuple[str, Way[Any, Any]], None]:
        """The name of a new session, and how it is held.

        See `HubActor.join` for `config`, `shards` and `after`, and `Calls` for `answer`.

        A door behind which nobody was heard is tried once: an actor that was started again has
        another.
        """
        import ray

        name = secrets.token_hex(SECRET_CHARS // 2)
        dumps = ray.cloudpickle.dumps
        door: Door | None = await answer(actor.join.remote(config, name, shards, after))
        channel: Channel[Any, Any] | None = None
        over = False
        try:
            if door is not None and door == self._doubted:
                self._avoid(door)  # it was not the hub's end that cut the connection
            if door is not None and door != self._avoided:
                channel = await connected(
                    door, name, dumps=dumps, beat_s=BEAT_S, silence_s=self._silence_s
                )
                if channel is None:
                    self._avoid(door)
            way: Channel[Any, Any] | Calls[Any, Any]
            way = channel or Calls(actor, name, answer, dumps=dumps)
            yield name, way
            over = way.over
            if channel is not None and not channel.heard:
                self._doubted = door
        finally:
            if channel is not None:
                channel.close()
            if not over:
                actor.leave.remote(name)

    def _avoid(self, door: Door) -> None:
        self._doubted, self._avoided = None, door
        _log.warning(
            "no connection to the hub at %s:%d lasts, so rows go there by calls of its actor, "
            "which costs more CPU time",
            door.host,
            door.port,
        )
