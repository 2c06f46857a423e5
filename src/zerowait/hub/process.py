"""The hub of a trainer's process: one inside it, or the one that a running service shares."""

from __future__ import annotations

import atexit
import math
import os
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from zerowait.client import Secret
from zerowait.config import RewardConfig, load_config
from zerowait.engine.concurrent_tasks import side_by_side
from zerowait.engine.plan import compile_plan
from zerowait.engine.portal import Portal, Submitted
from zerowait.errors import ConfigError, DataError, JudgementError, did_you_mean
from zerowait.hub.http.hub import HttpHub
from zerowait.hub.job import JobHub
from zerowait.hub.streaming import TRAINING
from zerowait.types import Reward, Sample

USUAL_GOLD_COLUMNS: Final = ("ground_truth", "solution", "answer")
OnAbstain: TypeAlias = float | Literal["neutral", "error"]
"""What a trainer that needs a number gets for a sample that abstained: ``neutral``, the mean of its
group's judged rows; a number of the user's choice; or ``error``, which stops the trainer."""


class ProcessHub:
    """A hub on an event loop of its own, for adapters: opened with the first use in each process.

    Args:
        config: a path to a ``reward.yaml``, a mapping, or a `RewardConfig`.
        url: a running ``zerowait serve`` with the same configuration, which all processes share;
            None: each process has an engine of its own.
        token: the value of the service's ``--token-env`` variable.

    Raises:
        ConfigError: the configuration is wrong.
    """

    def __init__(
        self,
        config: str | Path | Mapping[str, Any] | RewardConfig,
        *,
        url: str | None = None,
        token: str | Secret | None = None,
    ) -> None:
        try:
            self._config = load_config(config)
            compile_plan(self._config)  # raises what is wrong before the training starts
            self._url = url
            self._token = Secret(token) if isinstance(token, str) else token
        finally:
            del config, token  # a mapping may hold a key, and a traceback may show local variables
        self._opening = threading.Lock()
        self._opened: tuple[int, Portal, JobHub | HttpHub] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opening": None, "_opened": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._opening = threading.Lock()

    def score(self, sample: Sample) -> Submitted[Reward]:
        """A future of the sample's reward, for ``result()`` or ``await`` in any event loop."""
        portal, hub = self._open()
        return portal.submit(lambda: _reward(hub, sample))

    def numbers(
        self, samples: Sequence[Sample], on_abstain: OnAbstain
    ) -> Submitted[tuple[list[Reward], list[float]]]:
        """A future of the samples' rewards, and of the number of each that is trained on.

        The future raises a `JudgementError` where a sample abstained and `on_abstain` is
        ``error``, or nothing was judged yet that could be ``neutral``.
        """
        portal, hub = self._open()
        return portal.submit(lambda: _numbers(hub, samples, on_abstain))

    def _open(self) -> tuple[Portal, JobHub | HttpHub]:
        with self._opening:
            if self._opened is None or self._opened[0] != os.getpid():
                portal = Portal("zerowait-process")
                try:
                    hub = portal.call(self._open_hub)
                except BaseException:
                    portal.close()
                    raise
                self._opened = os.getpid(), portal, hub
                atexit.register(_close, *self._opened)
            return self._opened[1:]

    async def _open_hub(self) -> JobHub | HttpHub:
        if self._url is None:
            return await JobHub(self._config).__aenter__()
        hub = await HttpHub(self._url, token=self._token).__aenter__()
        try:
            await hub.stats()  # a wrong address or token is told now
        except BaseException:
            await hub.aclose()
            raise
        return hub


def gold_column(
    columns: Collection[str],
    named: str | None,
    lacking: str,
    *,
    usual: Sequence[str] = USUAL_GOLD_COLUMNS,
) -> str | None:
    """The column with the gold answer: the named one, else the first usual one; None without any.

    Args:
        columns: those that a row has.
        named: the one that the user named; None: none.
        lacking: how the error begins, such as ``the data has no column``.
        usual: the names that are looked for otherwise, in order.

    Raises:
        DataError: the named one is not among `columns`; names the nearest one that is.

    >>> gold_column({"prompt", "solution"}, None, "the data has no column")
    'solution'
    """
    if named is None:
        return next((column for column in usual if column in columns), None)
    if named not in columns:
        raise DataError(f"ground_truth: {lacking} {named!r}{did_you_mean(named, columns)}")
    return named


def checked_on_abstain(chosen: OnAbstain) -> OnAbstain:
    """`chosen`, which is ``neutral``, ``error`` or a finite number.

    Raises:
        ConfigError: it is none of these.
    """
    if chosen in ("neutral", "error") or is_number(chosen):
        return chosen
    raise ConfigError(f"on_abstain must be 'neutral', 'error' or a finite number, not {chosen!r}")


def is_number(chosen: object) -> bool:
    """Whether `chosen` is a finite number.

    >>> is_number(-1), is_number(True), is_number(float("nan")), is_number("neutral")
    (True, False, False, False)
    """
    return (
        isinstance(chosen, float | int)
        and not isinstance(chosen, bool)
        and math.isfinite(float(chosen))
    )


def number_or_error(reward: Reward, on_abstain: float | Literal["error"]) -> float:
    """The reward's value, or the number that the user chose for one that abstained.

    Raises:
        JudgementError: it abstained and `on_abstain` is ``error``.
    """
    if reward.value is not None:
        return reward.value
    if on_abstain == "error":
        raise JudgementError(f"no reward was reached and on_abstain is error: {reward.why}")
    return float(on_abstain)


async def _reward(hub: JobHub | HttpHub, sample: Sample) -> Reward:
    if isinstance(hub, JobHub):
        return await hub.score(sample)
    return (await hub.reward(sample)).reward


async def _numbers(
    hub: JobHub | HttpHub, samples: Sequence[Sample], on_abstain: OnAbstain
) -> tuple[list[Reward], list[float]]:
    if on_abstain == "neutral":
        streamed = await side_by_side([hub.reward(sample) for sample in samples])
        return [each.reward for each in streamed], [each.number(TRAINING) for each in streamed]
    rewards = await side_by_side([_reward(hub, sample) for sample in samples])
    return rewards, [number_or_error(reward, on_abstain) for reward in rewards]


def _close(pid: int, portal: Portal, hub: JobHub | HttpHub) -> None:
    if pid == os.getpid() and portal.is_open:
        portal.call(hub.aclose)
        portal.close()
