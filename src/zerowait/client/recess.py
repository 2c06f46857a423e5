"""Waiting for an endpoint that is left alone, and leaving its queues when it is."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from zerowait.client.breaker import Breaker
from zerowait.client.scope import Scope

T = TypeVar("T")
_NEXT_PROBE_S: Final = 0.25


class Exits:
    """The way out of an endpoint's queues, for all who stand there when it is left alone."""

    def __init__(self) -> None:
        self._scopes: dict[Scope, None] = {}
        self._at_news: list[Callable[[], None]] = []

    async def of(self, waiting: Awaitable[T]) -> T | None:
        """What `waiting` gives, or None: the endpoint was left alone, and it was cancelled."""
        scope = Scope()
        self._scopes[scope] = None
        try:
            with scope:
                return await waiting
        finally:
            self._scopes.pop(scope, None)
        return None

    def open(self) -> None:
        """Let everybody out, in the order in which they came."""
        scopes, self._scopes = self._scopes, {}
        for scope in scopes:
            scope.end()

    def when_news(self, call: Callable[[], None]) -> None:
        """Call `call` each time when the endpoint is back, or nothing more comes from it."""
        self._at_news.append(call)

    def tell(self) -> None:
        """There is news of the endpoint."""
        for call in self._at_news:
            call()


class Recess:
    """Where judgements wait while all endpoints of their judge are left alone.

    One is let go as a probe each time when an endpoint may be asked, and all when one is back;
    first come, first served. It belongs to one loop.

    Args:
        breakers: of the endpoints.
    """

    def __init__(self, breakers: Sequence[Breaker]) -> None:
        self._breakers = breakers
        self._line: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, until_s: float) -> None:
        """Return when it is this one's turn, or at `until_s`."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._line[turn] = None
        self._set_timer(loop.time())
        try:
            async with asyncio.timeout_at(until_s):
                await turn
        except TimeoutError:
            pass
        finally:
            self._line.pop(turn, None)

    def follow(self) -> None:
        """There is news of an endpoint: let all go and see."""
        while self._line:
            self._release()

    def _release(self) -> None:
        turn, _ = self._line.popitem(last=False)
        if not turn.done():  # done: its caller was cancelled and has not run since
            turn.set_result(None)

    def _ring(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self._timer = None
        if self._line and any(breaker.may_ask(now_s) for breaker in self._breakers):
            self._release()
            now_s += _NEXT_PROBE_S  # it may be given up before it is sent
        if self._line:
            self._set_timer(now_s)

    def _set_timer(self, now_s: float) -> None:
        due_s = max(now_s, min(breaker.until_s for breaker in self._breakers))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due_s, self._ring)
