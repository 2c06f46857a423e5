"""The place where all judge traffic of a job meets: an engine, its stream and its record."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from zerowait.config import RewardConfig
from zerowait.engine import Engine, Stats
from zerowait.hub.records import Records, RewardRecord
from zerowait.hub.streaming import Stream, Streamed
from zerowait.types import Sample


class Hub(Protocol):
    """What a trainer's plug-in asks for rewards, wherever it lives."""

    async def reward(self, sample: Sample) -> Streamed:
        """The row's number and what was really judged."""

    async def stats(self) -> Stats:
        """A frozen snapshot of the whole job."""


class JobHub:
    """The hub itself, on the running loop; opened and closed with ``async with``.

    Args:
        config: a path to a ``reward.yaml``, a mapping, or a `RewardConfig`.
        record: the folder that gets ``rewards.jsonl`` and ``stats.jsonl``; None keeps no record.
    """

    def __init__(
        self,
        config: str | Path | Mapping[str, Any] | RewardConfig,
        *,
        record: Path | None = None,
    ) -> None:
        self._engine = Engine(config)
        patience_s = self._engine.config.traffic.group_deadline_s
        self._stream = Stream(self._engine, patience_s=patience_s)
        self._folder = record
        self._records: Records | None = None
        self._place: tuple[str, int | None] = ("", None)

    async def __aenter__(self) -> Self:
        await self._engine.__aenter__()
        if self._folder is not None:
            self._records = Records(self._folder)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._engine.aclose()
        if self._records is not None:
            split, step = self._place
            self._records.stats(self._engine.stats(), split=split, step=step, last=True)
            self._records.close()

    async def reward(self, sample: Sample) -> Streamed:
        """The row's number, on the record before it is handed out.

        Raises:
            JudgementError: see `Stream.reward`.
        """
        submitted_at = time.time()
        streamed = await self._stream.reward(sample)
        if self._records is not None:
            self._place = (sample.split, sample.step)
            self._records.reward(
                RewardRecord(
                    sample=sample,
                    reward=streamed.reward,
                    trained_on=streamed.value,
                    stand_in=streamed.stand_in,
                    submitted_at=submitted_at,
                    settled_at=time.time(),
                )
            )
            self._records.stats(self._engine.stats(), split=sample.split, step=sample.step)
        return streamed

    async def stats(self) -> Stats:
        """A frozen snapshot of the whole job."""
        return self._engine.stats()
