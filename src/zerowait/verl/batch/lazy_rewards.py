"""Rewards that are opened at their first use, once in each process that uses them."""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from zerowait.config import load_config
from zerowait.engine import Engine, Rewards
from zerowait.engine.credentials import credentials
from zerowait.engine.plan import Plan, compile_plan
from zerowait.engine.portal import new_loop
from zerowait.engine.progress import Progress
from zerowait.types import Reward, Sample


class LazyRewards:
    """Rewards for batches, opened at their first use and again after `close`; can be pickled.

    A forked process opens its own.

    Args:
        config: the reward configuration, as in a ``reward.yaml``.
        deadline_s: seconds that a batch may take; after that its open judgements abstain with
            ``timeout``.
        one_by_one: whether batches run in the calling thread, on an event loop of their own.

    Raises:
        ConfigError: `config` is wrong, or an API key is missing.
    """

    _rewards: Rewards | None

    def __init__(
        self, config: str | Mapping[str, Any], *, deadline_s: float, one_by_one: bool = False
    ) -> None:
        self._config = load_config(config)
        self.plan: Plan = compile_plan(self._config)
        credentials(self._config)
        self._deadline_s = deadline_s
        self._one_by_one = one_by_one
        self._reset()

    def open(self) -> Rewards:
        """This process's rewards, opened if they are not."""
        if self._pid != os.getpid():  # the parent's loop thread did not come along
            self._reset()
        with self._opening:
            if self._rewards is None:
                self._rewards = Rewards(self._config)
            return self._rewards

    def close(self) -> None:
        """Close this process's rewards. Idempotent."""
        if self._pid != os.getpid():
            self._reset()
        with self._opening:
            rewards, self._rewards = self._rewards, None
        if rewards is not None:
            rewards.close()

    def score(self, samples: Sequence[Sample]) -> list[Reward]:
        """The rewards of a batch, in order; shows a progress bar, or a line every 10 s.

        Raises:
            DataError, JudgementError: as `zerowait.Engine.score_all`.
        """
        if not self._one_by_one:
            return self.open().score(samples, progress=True, deadline_s=self._deadline_s)
        if _has_running_loop():
            warnings.warn(
                "an event loop runs in this thread (a notebook), so that judges are asked one at "
                "a time in another thread and not in this one",
                RuntimeWarning,
                stacklevel=3,
            )
            return self.open().score(samples, progress=True, deadline_s=self._deadline_s)
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(self._score_here(samples))

    def one(self, sample: Sample) -> Reward:
        """The reward of one sample; only the deadlines of its judgements apply."""
        future = self.open().submit(sample)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit_all(self, samples: Sequence[Sample]) -> Future[list[Reward]]:
        """A future of the rewards of a batch; returns at once."""
        return self.open().submit_all(samples, deadline_s=self._deadline_s)

    async def _score_here(self, samples: Sequence[Sample]) -> list[Reward]:
        with Progress(len(samples), shown=True) as bar:
            async with Engine(self._config) as engine:
                return await engine.score_all(
                    samples, on_reward=lambda *_: bar.advance(), deadline_s=self._deadline_s
                )

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._opening = threading.Lock()
        self._rewards = None

    def __getstate__(self) -> dict[str, Any]:
        process_local = ("_opening", "_rewards", "_pid", "plan")
        return {key: value for key, value in vars(self).items() if key not in process_local}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.plan = compile_plan(self._config)
        self._reset()


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
