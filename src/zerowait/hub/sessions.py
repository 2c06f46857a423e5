"""The hub's side of processes that hand in and collect by the batch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from zerowait.errors import ZerowaitError
from zerowait.hub.streaming import Streamed
from zerowait.types import Reward, Sample

Result: TypeAlias = tuple[int, Streamed | Reward | ZerowaitError]
"""A call's number, and its reward or what went wrong."""
Judges: TypeAlias = Callable[[Sample], Awaitable[Streamed | Reward]]

_log = logging.getLogger(__name__)


class _Session:
    """What one process waits for, and what it has not collected yet."""

    def __init__(self, now: float, reward: Judges) -> None:
        self.reward = reward
        self.calls: dict[int, asyncio.Task[None]] = {}
        self.results: list[Result] = []
        self.any = asyncio.Event()
        self.heard_at = now
        self.timer: asyncio.TimerHandle | None = None

    def end(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        for call in self.calls.values():
            call.cancel()


class Sessions:
    """Rewards samples for several processes, each in a session of its own.

    A process that was killed cannot give up what it asked for. So a session that was not heard of
    for `silence_s` is ended: requests that nobody waits for would be paid for and take the places
    of others. It belongs to one event loop.

    Args:
        reward: gives a sample's reward.
        beat_s: the longest that `collect` waits before it answers with nothing, as a sign of life.
        silence_s: a session that was not heard of for so long is over.
    """

    def __init__(
        self,
        reward: Judges,
        *,
        beat_s: float,
        silence_s: float,
    ) -> None:
        self._reward = reward
        self._beat_s = beat_s
        self._silence_s = silence_s
        self._sessions: dict[str, _Session] = {}

    def __len__(self) -> int:
        """Sessions that are not over."""
        return len(self._sessions)

    def join(self, name: str, reward: Judges | None = None) -> None:
        """Begin a session, whose samples are rewarded by `reward` instead, if it is given."""
        loop = asyncio.get_running_loop()
        session = self._sessions[name] = _Session(loop.time(), reward or self._reward)
        session.timer = loop.call_later(self._silence_s, self._check, name)

    def submit(
        self, name: str, samples: Iterable[tuple[int, Sample]], given_up: Iterable[int]
    ) -> bool:
        """Begin to judge `samples`, and give up the calls of which nobody wants the result.

        False when the session is over, and everything has to be handed in again in another.
        """
        session = self._heard(name)
        if session is None:
            return False
        for number, sample in samples:
            if number not in session.calls:
                task = asyncio.create_task(self._settle(session, number, sample))
                session.calls[number] = task
        for number in given_up:
            call = session.calls.pop(number, None)
            if call is not None:
                call.cancel()
        return True

    async def collect(self, name: str) -> list[Result] | None:
        """What has come since the last time; empty after `beat_s`, None when it is over."""
        session = self._heard(name)
        if session is None:
            return None
        try:
            async with asyncio.timeout(self._beat_s):
                await session.any.wait()
        except TimeoutError:
            pass
        session.any.clear()
        results, session.results = session.results, []
        return results

    def leave(self, name: str) -> None:
        """End a session and give up what is left of it."""
        session = self._sessions.pop(name, None)
        if session is not None:
            session.end()

    async def _settle(self, session: _Session, number: int, sample: Sample) -> None:
        result: Streamed | Reward | ZerowaitError
        try:
            result = await session.reward(sample)
        except ZerowaitError as error:
            result = error
        except Exception as error:  # noqa: BLE001 - logged, and the caller is told
            _log.exception("a reward failed in the hub")
            result = ZerowaitError(f"the hub failed ({type(error).__name__}): see its log")
        session.calls.pop(number, None)
        session.results.append((number, result))
        session.any.set()

    def _heard(self, name: str) -> _Session | None:
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
            self.leave(name)
