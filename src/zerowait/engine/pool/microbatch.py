"""Micro-batches: calls of a function that takes lists, handed to it as lists.

A list is made of the calls that wait when a worker becomes free; no call waits for a list to fill
up. A list that fails is split in halves and retried, down to single samples: one bad sample costs
its siblings time, and never their outcome.
"""

from __future__ import annotations

import asyncio
import pickle
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from zerowait.types import Abstain, FailureKind, Outcome

MAX_BATCH: Final = 32
"""Samples in one list, at most."""

TakeCalls: TypeAlias = Callable[[], list[bytes]]
"""Gives the packed calls that a worker gets, as soon as one is free."""

ScoreList: TypeAlias = Callable[[str, TakeCalls, float], Awaitable[list[Outcome] | Abstain]]
"""``(target, take, timeout_s)`` to one outcome per packed call, or one abstention for all."""

_RETRIED = frozenset({FailureKind.TIMEOUT, FailureKind.CRASHED})


@dataclass(frozen=True, eq=False)
class _WaitingCall:
    packed: bytes
    outcome: asyncio.Future[Outcome]


class MicroBatches:
    """Collects calls into lists; belongs to one loop.

    Args:
        score: scores a list in a worker, after waiting for a free one.
    """

    def __init__(self, score: ScoreList) -> None:
        self._score = score
        self._waiting: dict[tuple[str, bytes, float], deque[_WaitingCall]] = {}
        self._serving: set[asyncio.Task[None]] = set()

    async def run(
        self, target: str, call: bytes, options: Mapping[str, Any], *, timeout_s: float
    ) -> Outcome:
        """The outcome of one packed call.

        Args:
            target: the function; calls of the same target, options and deadline share lists.
            call: sample and options, see `worker_calls.packed_call`.
            options: keyword arguments of the function.
            timeout_s: of one list.
        """
        key = (target, pickle.dumps(sorted(options.items())), timeout_s)
        waiting = _WaitingCall(call, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(key, deque()).append(waiting)
        # Owned by us and not by the caller: cancelling one call must not take the others along.
        task = asyncio.create_task(self._serve(key))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        return await waiting.outcome

    async def aclose(self) -> None:
        """Wait until every list has its outcome; the workers are closed by then."""
        if self._serving:
            await asyncio.wait(set(self._serving))

    async def _serve(self, key: tuple[str, bytes, float]) -> None:
        batch: list[_WaitingCall] = []

        def take() -> list[bytes]:
            waiting = self._waiting[key]
            while waiting and len(batch) < MAX_BATCH:
                call = waiting.popleft()
                if not call.outcome.done():  # its caller may have given up
                    batch.append(call)
            return [call.packed for call in batch]

        target, _, timeout_s = key
        try:
            outcomes = await self._score(target, take, timeout_s)
            await self._settle(target, batch, outcomes, timeout_s)
        finally:
            for call in batch:
                call.outcome.cancel()  # does nothing where there is an outcome

    async def _settle(
        self,
        target: str,
        batch: list[_WaitingCall],
        outcomes: list[Outcome] | Abstain,
        timeout_s: float,
    ) -> None:
        """Set each call's outcome; a list that failed is retried in halves first."""
        if isinstance(outcomes, Abstain):
            if len(batch) > 1 and outcomes.kind in _RETRIED:
                half = len(batch) // 2
                for part in (batch[:half], batch[half:]):
                    packed = [call.packed for call in part]
                    again = await self._score(target, packed.copy, timeout_s)
                    await self._settle(target, part, again, timeout_s)
                return
            outcomes = [outcomes for _ in batch]
        for call, outcome in zip(batch, outcomes, strict=True):
            if not call.outcome.done():
                call.outcome.set_result(outcome)
