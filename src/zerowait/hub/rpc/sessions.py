"""The hub's side of processes that hand in and collect by the batch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, TypeAlias, TypeVar

from zerowait.errors import ZerowaitError

T = TypeVar("T")
R = TypeVar("R")

CallResult: TypeAlias = tuple[int, R | ZerowaitError]
"""A call's number, and what came of it or what went wrong."""

_log = logging.getLogger(__name__)

HEARTBEAT_S: Final = 10.0
"""Worker and hub send this often over a connection when there is nothing else to send."""


class _Session(Generic[R]):
    """What one process waits for, and what it has not collected yet."""

    def __init__(self, now: float) -> None:
        self.calls: dict[int, asyncio.Task[None]] = {}
        self.results: list[CallResult[R]] = []
        self.sent: dict[int, R | ZerowaitError] = {}  # and perhaps on the way
        self.kept: dict[int, R | ZerowaitError] = {}  # for calls of the session before
        self.any = asyncio.Event()
        self.heard_at = now
        self.timer: asyncio.TimerHandle | None = None

    def settle(self, number: int, result: R | ZerowaitError) -> None:
        self.results.append((number, result))
        self.any.set()

    def end(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        for call in self.calls.values():
            call.cancel()


class Sessions(Generic[T, R]):
    """Works for several processes, each in a session of its own: rewards samples, say.

    A process that was killed cannot give up what it asked for. So a session that was not heard of
    for `silence_s` is ended: requests that nobody waits for would be paid for and take the places
    of others. It belongs to one event loop.

    Args:
        work: gives the result of what was handed in.
        beat_s: the longest that `collect` waits before it answers with nothing, as a sign of life.
        silence_s: a session that was not heard of for so long is over.
    """

    def __init__(
        self,
        work: Callable[[T], Awaitable[R]],
        *,
        beat_s: float,
        silence_s: float,
    ) -> None:
        self._work = work
        self._beat_s = beat_s
        self._silence_s = silence_s
        self._sessions: dict[str, _Session[R]] = {}
        self._undelivered: dict[str, dict[int, R | ZerowaitError]] = {}

    def __len__(self) -> int:
        """Sessions that are not over."""
        return len(self._sessions)

    def __contains__(self, name: str) -> bool:
        """Whether there is such a session."""
        return name in self._sessions

    def join(self, name: str, after: str = "") -> None:
        """Begin a session, which gets what did not arrive in `after`, the one before."""
        loop = asyncio.get_running_loop()
        session: _Session[R] = _Session(loop.time())
        self.cut(after)
        session.kept = self._undelivered.pop(after, {})
        self._sessions[name] = session
        session.timer = loop.call_later(self._silence_s, self._check, name)

    def submit(
        self, name: str, items: Iterable[tuple[int, T | ZerowaitError]], given_up: Iterable[int]
    ) -> bool:
        """Begin to work on `items`, and give up the calls of which nobody wants the result.

        An error in place of an item is what comes of it.
        False when the session is over, and everything has to be handed in again in another.
        """
        session = self._heard(name)
        if session is None:
            return False
        for number, item in items:
            if number in session.kept:
                session.settle(number, session.kept.pop(number))
            elif number not in session.calls:
                task = asyncio.create_task(self._settle(session, number, item))
                session.calls[number] = task
        for number in given_up:
            session.sent.pop(number, None)
            session.kept.pop(number, None)
            call = session.calls.pop(number, None)
            if call is not None:
                call.cancel()
        return True

    async def collect(self, name: str, *, heard: bool = True) -> list[CallResult[R]] | None:
        """What has come since the last time; empty after `beat_s`, None when it is over.

        Args:
            name: of the session.
            heard: whether it is the process itself that asks, which is a sign of its life; what is
                sent without that is kept until it is given up, or the session is cut.
        """
        session = self._heard(name) if heard else self._sessions.get(name)
        if session is None:
            return None
        try:
            async with asyncio.timeout(self._beat_s):
                await session.any.wait()
        except TimeoutError:
            pass
        session.any.clear()
        results, session.results = session.results, []
        if not heard:
            session.sent.update(results)
        return results

    def leave(self, name: str) -> None:
        """End a session and give up what is left of it."""
        session = self._sessions.pop(name, None)
        if session is not None:
            session.end()
        self._undelivered.pop(name, None)

    def cut(self, name: str) -> None:
        """End a session, whose process may begin another for what is left of this one."""
        session = self._sessions.pop(name, None)
        if session is None:
            return
        session.end()
        undelivered = session.sent | session.kept | dict(session.results)
        if undelivered:
            self._undelivered[name] = undelivered
            loop = asyncio.get_running_loop()
            loop.call_later(self._silence_s, self._undelivered.pop, name, None)

    async def _settle(self, session: _Session[R], number: int, item: T | ZerowaitError) -> None:
        result: R | ZerowaitError
        try:
            result = item if isinstance(item, ZerowaitError) else await self._work(item)
        except ZerowaitError as error:
            result = error
        except Exception as error:  # noqa: BLE001 - logged, and the caller is told
            _log.exception("a call failed in the hub")
            result = ZerowaitError(f"the hub failed ({type(error).__name__}): see its log")
        session.calls.pop(number, None)
        session.settle(number, result)

    def _heard(self, name: str) -> _Session[R] | None:
        session = self._sessions.get(name)
        if session is not None:
            session.heard_at = asyncio.get_running_loop().time()
        return session

    def _check(self, name: str) -> None:
        loop, session = asyncio.get_running_loop(), self._sessions[name]
        over_at = session.heard_at + self._silence_s
        if loop.time() < over_at:
            session.timer = loop.call_at(over_at, self._check, name)
        else:
            self.cut(name)
