"""Clients of the quality judge alone, for synchronous and for asynchronous code."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from zerowait.engine import Engine
from zerowait.errors import ClosedError
from zerowait.types import Reward, Sample
from zerowait.verl.batch.lazy_rewards import LazyRewards
from zerowait.verl.batch.settings import LengthPenaltyConfig


class AsyncOpenAIManager:
    """Judges batches in the background; opens at the first use, ``with`` closes it.

    Args:
        config: a `LengthPenaltyConfig`, or the mapping to make one; its length penalty and gate are
            not used.

    Raises:
        ConfigError: something in the settings is wrong, or the judge's key is missing.
    """

    def __init__(self, config: LengthPenaltyConfig | Mapping[str, Any] | None = None) -> None:
        self.config = LengthPenaltyConfig.of(config)
        self._rewards = LazyRewards(self.config.quality(), deadline_s=self.config.deadline_s)

    def initialize(self) -> None:
        """Open the engine now and not at the first batch. Idempotent."""
        self._rewards.open()

    def shutdown(self) -> None:
        """Close the engine; open futures are cancelled. Idempotent."""
        self._rewards.close()

    def submit(self, batch: Sequence[Sample]) -> Future[list[Reward]]:
        """A future of the batch's rewards, in order; returns at once.

        A reward's value is `reward_coefficient` times the judge's score; None where there is no
        score after `deadline_s` seconds and the failure policy gives no number.
        """
        return self._rewards.submit_all(batch)

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
    """Judges batches on the running event loop; ``async with`` opens and closes it.

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
        """Open the engine. Idempotent."""
        if not self._open:
            await self._engine.__aenter__()
            self._open = True

    async def shutdown(self) -> None:
        """Close the engine; it cannot be opened again. Idempotent."""
        await self._engine.aclose()

    async def process(self, batch: Sequence[Sample]) -> list[Reward]:
        """The batch's rewards, in order; values as in `AsyncOpenAIManager.submit`.

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
