"""Scheduler of the rollout server: admits requests between two tokens, pauses and aborts.

One task drives the batch while there is work and ends when there is none, so nothing polls. Tokens
are computed in a thread of their own: the event loop stays free to accept requests, and pauses take
effect at the next token.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from zerowait.errors import ClosedError
from zerowait.verl.cpu.rollout.batch import DecodingBatch
from zerowait.verl.cpu.rollout.generation import Generation

T = TypeVar("T")

_ROUNDS_OF_QUIET = 10


class LoopStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a `DecodingLoop`.

    Args:
        responses: finished responses, without aborted ones.
        tokens: sampled tokens.
        steps: forward passes that sampled a token for every row.
        admissions: prefills of new requests.
        widest: most rows decoded at a time.
        busy_s: seconds in which the model computed.
    """

    responses: int = 0
    tokens: int = 0
    steps: int = 0
    admissions: int = 0
    widest: int = 0
    busy_s: float = 0.0


class DecodingLoop:
    """Schedules requests on one `DecodingBatch` with continuous batching.

    Args:
        batch: used by this loop alone.
        quiet_s: seconds; requests that arrive within this time of each other are prefilled
            together.
    """

    def __init__(self, batch: DecodingBatch, *, quiet_s: float = 0.01) -> None:
        self._batch = batch
        self._quiet_s = quiet_s
        self._waiting: deque[Generation] = deque()
        self._answers: dict[Generation, asyncio.Future[Generation]] = {}
        self._paused_by: set[str] = set()
        self._rejecting = False
        self._closed = False
        self._driver: asyncio.Task[None] | None = None
        # Always the same thread: OpenMP keeps a team of workers for each thread that calls it.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="decode")
        self._stats = LoopStats()

    @property
    def stats(self) -> LoopStats:
        """The counts so far."""
        return self._stats

    async def generate(self, generation: Generation) -> Generation:
        """`generation`, finished or aborted.

        Raises:
            ClosedError: the loop was closed.
            Exception: what the model raised.
        """
        if self._closed:
            raise ClosedError("the rollout server was closed")
        if self._rejecting:
            generation.finish = "aborted"
            return generation
        answer = asyncio.get_running_loop().create_future()
        self._answers[generation] = answer
        self._waiting.append(generation)
        self._drive()
        try:
            return await answer
        finally:
            self._answers.pop(generation, None)
            generation.cancelled = not generation.finish

    async def pause(self, reason: str) -> None:
        """Stop at the next token, until `resume` was called for every reason to pause."""
        self._paused_by.add(reason)
        if self._driver is None:
            return
        try:
            await asyncio.wait({self._driver})
        except asyncio.CancelledError:
            self.resume(reason)
            raise

    def resume(self, reason: str) -> None:
        """Remove one reason to pause; decoding continues when there is none left."""
        self._paused_by.discard(reason)
        self._drive()

    async def evict(self, reason: str) -> None:
        """Pause and free the cache; the responses continue later from the tokens they have."""
        await self.pause(reason)
        self._waiting.extendleft(reversed(self._batch.take_all()))

    async def abort(self, *, reject: bool) -> int:
        """End all responses that have begun, and hold the other requests until `accept_requests`.

        Args:
            reject: whether to end those too, and to answer new requests as aborted at once.

        Returns:
            The number of responses that were ended.
        """
        self._rejecting = reject
        await self.pause("abort")
        here = [*self._batch.take_all(), *self._waiting]
        ended = [generation for generation in here if reject or generation.token_ids]
        self._waiting = deque(() if reject else (one for one in here if not one.token_ids))
        for generation in ended:
            generation.finish = "aborted"
        self._settle(ended)
        return len(ended)

    def accept_requests(self) -> None:
        """Undo `abort`."""
        self._rejecting = False
        self.resume("abort")

    async def run(self, work: Callable[[], T]) -> T:
        """The result of ``work()``, called in the decoding thread; pause the loop first."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def aclose(self) -> None:
        """Abort all responses and end the thread."""
        self._closed = True
        await self.abort(reject=True)
        self._thread.shutdown(wait=False)

    def _drive(self) -> None:
        idle = self._driver is None and not self._paused_by
        if idle and (self._waiting or self._batch.rows):
            self._driver = asyncio.get_running_loop().create_task(self._decode())

    async def _decode(self) -> None:
        try:
            if not self._batch.rows:
                await self._until_quiet()
            while not self._paused_by and (self._waiting or self._batch.rows):
                await self._advance()
        except Exception as error:  # noqa: BLE001 - raised in the callers of `generate`
            self._fail(error)
        finally:
            self._driver = None
        self._drive()

    async def _until_quiet(self) -> None:
        for _ in range(_ROUNDS_OF_QUIET):
            before = len(self._waiting)
            await asyncio.sleep(self._quiet_s)
            if len(self._waiting) == before or self._paused_by:
                return

    async def _advance(self) -> None:
        joining = self._joining()
        clock = asyncio.get_running_loop().time
        began = clock()
        rows = len(self._batch.rows)
        done = await self.run(lambda: self._step(joining))
        self._stats = LoopStats(
            responses=self._stats.responses + len(done),
            tokens=self._stats.tokens + rows + len(joining),
            steps=self._stats.steps + bool(rows),
            admissions=self._stats.admissions + bool(joining),
            widest=max(self._stats.widest, rows + len(joining)),
            busy_s=self._stats.busy_s + clock() - began,
        )
        self._settle(done)

    def _joining(self) -> list[Generation]:
        joining: list[Generation] = []
        columns = self._batch.columns
        while self._waiting:
            generation = self._waiting[0]
            if not generation.done:
                columns = max(columns, generation.longest)
                if not self._batch.fits(len(self._batch.rows) + len(joining) + 1, columns):
                    break
                joining.append(generation)
            self._waiting.popleft()
        return joining

    def _step(self, joining: Sequence[Generation]) -> list[Generation]:
        """In the decoding thread: one token for every row, and the first for the new ones."""
        if self._batch.rows:
            self._batch.step()
        if joining:
            self._batch.admit(joining)
        return self._batch.take_done()

    def _settle(self, ended: Sequence[Generation]) -> None:
        for generation in ended:
            answer = self._answers.get(generation)
            if answer is not None and not answer.done():
                answer.set_result(generation)

    def _fail(self, error: Exception) -> None:
        """Empty the batch after an error, and raise the error in all callers of `generate`."""
        self._batch.take_all()
        self._waiting.clear()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error)
