"""Calls that wait for a function which takes lists, handed to it as lists.

A list is whatever waits when a worker becomes free, so that nobody waits for a list to fill up. Of
a list that fails, each half is asked for again, down to single samples: one bad sample costs its
siblings time, and never their judgement.
"""

from __future__ import annotations

import asyncio
import pickle
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from zerowait.types import Abstain, FailureKind, Outcome

LARGEST_MICROBATCH: Final = 32
"""Samples in one list, at most."""

Take: TypeAlias = Callable[[], list[bytes]]
ListFunction: TypeAlias = Callable[[str, Take, float], Awaitable[list[Outcome] | Abstain]]
"""``(target, take, timeout_s)`` to one outcome for each of the packed works that `take` gives as
soon as a worker is free, or why there are none."""

_FAULTS = frozenset({FailureKind.TIMEOUT, FailureKind.CRASHED})


@dataclass(frozen=True, eq=False)
class _Call:
    work: bytes
    outcome: asyncio.Future[Outcome]


class MicroBatches:
    """Makes lists of calls; belongs to one loop.

    Args:
        judge: asks a worker, after waiting for a free one.
    """

    def __init__(self, judge: ListFunction) -> None:
        self._judge = judge
        self._waiting: dict[tuple[str, bytes, float], deque[_Call]] = {}
        self._serving: set[asyncio.Task[None]] = set()

    async def run(
        self, target: str, work: bytes, options: Mapping[str, Any], *, timeout_s: float
    ) -> Outcome:
        """The outcome for `work`; calls of the same target, options and deadline share lists."""
        key = (target, pickle.dumps(sorted(options.items())), timeout_s)
        call = _Call(work, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(key, deque()).append(call)
        # Owned by us and not by the caller: cancelling one call must not take the others along.
        task = asyncio.create_task(self._serve(key))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        return await call.outcome

    async def aclose(self) -> None:
        """Wait until every list has its outcome; the workers are closed by then."""
        if self._serving:
            await asyncio.wait(set(self._serving))

    async def _serve(self, key: tuple[str, bytes, float]) -> None:
        calls: list[_Call] = []

        def take() -> list[bytes]:
            waiting = self._waiting[key]
            while waiting and len(calls) < LARGEST_MICROBATCH:
                call = waiting.popleft()
                if not call.outcome.done():  # its caller may have given up
                    calls.append(call)
            return [call.work for call in calls]

        target, _, timeout_s = key
        try:
            outcomes = await self._judge(target, take, timeout_s)
            await self._settle(target, calls, outcomes, timeout_s)
        finally:
            for call in calls:
                call.outcome.cancel()  # does nothing where there is an outcome

    async def _settle(
        self, target: str, calls: list[_Call], outcomes: list[Outcome] | Abstain, timeout_s: float
    ) -> None:
        if isinstance(outcomes, Abstain):
            if len(calls) > 1 and outcomes.kind in _FAULTS:
                await self._in_parts(target, calls, timeout_s)
                return
            outcomes = [outcomes for _ in calls]
        for call, outcome in zip(calls, outcomes, strict=True):
            if not call.outcome.done():
                call.outcome.set_result(outcome)

    async def _in_parts(self, target: str, calls: list[_Call], timeout_s: float) -> None:
        half = len(calls) // 2
        for part in (calls[:half], calls[half:]):
            works = [call.work for call in part]
            outcomes = await self._judge(target, works.copy, timeout_s)
            await self._settle(target, part, outcomes, timeout_s)
