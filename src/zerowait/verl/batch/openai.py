"""The quality judge by itself, from synchronous and from asynchronous code."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from zerowait.engine import Engine
from zerowait.errors import ClosedError
from zerowait.types import Reward, Sample
from zerowait.verl.batch.opened import LazyRewards
from zerowait.verl.batch.settings import LengthPenaltyConfig


class AsyncOpenAIManager:
    """Asks the judge about batches in the background; opened at first use, ``with`` closes it.

    Args:
        config: a `LengthPenaltyConfig` or what makes one; its length penalty and gate are not used.

    Raises:
        ConfigError: something in the settings is wrong, or the judge's key is missing.
    """

    def __init__(self, config: LengthPenaltyConfig | Mapping[str, Any] | None = None) -> None:
        self.config = LengthPenaltyConfig.of(config)
        self._opened = LazyRewards(self.config.quality(), deadline_s=self.config.deadline_s)

    def initialize(self) -> None:
        """Open it now and not with the first batch. Idempotent."""
        self._opened.open()

    def shutdown(self) -> None:
        """Close it: futures that are not done are cancelled. Idempotent."""
        self._opened.close()

    def submit(self, batch: Sequence[Sample]) -> Future[list[Reward]]:
        """A future of each sample's reward, in order; returns at once.

        A reward's value is `reward_coefficient` times the judge's score, or None where the judge
        did not give one by `deadline_s` and the failure policy makes no number of that.
        """
        return self._opened.submit_all(batch)

    def __enter__(self) -> Self:
        self.initialize()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()


class AsyncOpenAIWorker:
    """The same on the running event loop; ``async with`` opens and closes it.

    Args:
        config: as for `AsyncOpenAIManager`.

    Raises:
        ConfigError: something in the settings is wrong, or the judge's key is missing.
    """

    def __init__(self, config: LengthPenaltyConfig | Mapping[str, Any] | None = None) -> None:
        self.config = LengthPenaltyConfig.of(config)
        self._engine = Engine(self.config.quality())
        self._open = False

    async def initialize(self) -> None:
        """Open it. Idempotent."""
        if not self._open:
            await self._engine.__aenter__()
            self._open = True

    async def shutdown(self) -> None:
        """Close it for good. Idempotent."""
        await self._engine.aclose()

    async def process(self, batch: Sequence[Sample]) -> list[Reward]:
        """Each sample's reward, in order, as `AsyncOpenAIManager.submit` promises it.

        Raises:
            ClosedError: it is not open.
            DataError, JudgementError: as `zerowait.Engine.score_all`.
        """
        if not self._open:
            raise ClosedError("the worker is not open: use `async with`, or await initialize()")
        return await self._engine.score_all(batch, deadline_s=self.config.deadline_s)

    async def __aenter__(self) -> Self:
        await self.initialize()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.shutdown()


def get_request_hash(request: str) -> str:
    """The SHA-256 of a request's text, as 64 hexadecimal digits.

    >>> get_request_hash("2+2?")[:8]
    '30ad2052'
    """
    return hashlib.sha256(request.encode("utf-8", "surrogatepass")).hexdigest()
