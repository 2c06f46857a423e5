"""Calls of functions that live in this process alone: lambdas, bound methods, a notebook's own.

A synchronous one runs in a thread, an asynchronous one on the engine's loop. Neither can be ended:
after its deadline the sample abstains, and the thread goes on without anybody waiting for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from zerowait.engine.pool.worker import POOL_CLOSED, timed_out
from zerowait.scorers import UserScorer
from zerowait.types import Outcome, Sample


class LocalCalls:
    """The calls of one component's functions; belongs to one loop.

    Args:
        workers: threads for synchronous functions; one that is late no longer counts.
        concurrency: overlapping calls of asynchronous ones.
    """

    def __init__(self, workers: int, concurrency: int) -> None:
        self._threads = asyncio.Semaphore(workers)
        self._overlapping = asyncio.Semaphore(concurrency)
        self._deadlines: set[asyncio.Timeout] = set()
        self._closed = False

    async def run(
        self, scorer: UserScorer, sample: Sample, options: Mapping[str, Any], timeout_s: float
    ) -> Outcome:
        """The outcome for `sample`; see `ScorerPool.run`."""
        async with self._overlapping if scorer.is_async else self._threads:
            if self._closed:
                return POOL_CLOSED
            deadline = asyncio.timeout(timeout_s)
            try:
                async with deadline:
                    self._deadlines.add(deadline)
                    if scorer.is_async:
                        return await scorer.acall(sample, **options)
                    return await _in_thread(scorer, sample, options)
            except TimeoutError:
                return POOL_CLOSED if self._closed else timed_out(scorer.target, timeout_s)
            finally:
                self._deadlines.discard(deadline)

    def close(self) -> None:
        """Wait for no call any more."""
        self._closed = True
        for deadline in self._deadlines:
            deadline.reschedule(0.0)


def _in_thread(
    scorer: UserScorer, sample: Sample, options: Mapping[str, Any]
) -> asyncio.Future[Outcome]:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Outcome] = loop.create_future()

    def settle(outcome: Outcome) -> None:
        if not done.done():
            done.set_result(outcome)

    def call() -> None:
        outcome = scorer(sample, **options)
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, outcome)

    # a daemon, since one that never returns must not keep the interpreter from ending
    threading.Thread(target=call, name=f"zerowait {scorer.target}", daemon=True).start()
    return done
