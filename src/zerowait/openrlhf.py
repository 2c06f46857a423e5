"""Reward function for OpenRLHF's ``--reward.remote_url rewards.py``, made by `reward_func`.

The file is two lines: ``from zerowait.openrlhf import reward_func as make`` and
``reward_func = make("reward.yaml")``. OpenRLHF imports it in each of its vLLM engines, so each has
limits of its own; with several engines run one ``zerowait serve`` and give OpenRLHF its address.
"""

from __future__ import annotations

import atexit
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from zerowait.config import RewardConfig, load_config
from zerowait.engine.plan import compile_plan
from zerowait.engine.portal import Portal
from zerowait.engine.together import side_by_side
from zerowait.errors import ConfigError
from zerowait.hub.http import wire
from zerowait.hub.job import JobHub
from zerowait.types import Reward, Sample


def reward_func(
    config: str | Path | Mapping[str, Any] | RewardConfig,
    *,
    on_abstain: float | Literal["neutral", "error"] = "error",
    group_size: int | None = None,
    data_source: str = "",
) -> Callable[[Sequence[str], Sequence[str], Sequence[Any]], dict[str, Any]]:
    """OpenRLHF's ``reward_func(queries, prompts, labels)`` for a reward configuration.

    It returns ``rewards``, ``scores`` and ``extra_logs``, each with a number for every query.

    Args:
        config: a path to a ``reward.yaml``, a mapping, or a `RewardConfig`.
        on_abstain: what a query that abstained gets, since OpenRLHF needs a number: ``neutral``
            for the mean of its group's judged rows (advantage 0 where the group's mean is the
            baseline), a number of your choice, or ``error``, which stops OpenRLHF.
        group_size: OpenRLHF's ``n_samples_per_prompt``; None: every query stands alone, and the
            mean is that of the run.
        data_source: of every sample.

    Raises:
        ConfigError: the configuration is wrong, or `on_abstain` is none of these.
    """
    loaded = load_config(config)
    del config  # a mapping may hold a key
    _check_on_abstain(on_abstain)
    compile_plan(loaded)  # raises what is wrong before the training starts
    hub = _OpenHub(loaded)
    constants = {"data_source": data_source}
    if group_size is not None:
        constants["group_size"] = str(group_size)

    def computed(
        queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]
    ) -> dict[str, Any]:
        body = {"query": list(queries), "prompts": list(prompts), "labels": list(labels)}
        samples = wire.decode_openrlhf(msgspec.json.encode(body), constants)
        rewards, values = hub.rewards(samples, on_abstain)
        return wire.openrlhf_reply(rewards, values)

    return computed


def _check_on_abstain(chosen: object) -> None:
    number = isinstance(chosen, float | int) and not isinstance(chosen, bool)
    if chosen in ("neutral", "error") or (number and math.isfinite(float(str(chosen)))):
        return
    raise ConfigError(f"on_abstain must be 'neutral', 'error' or a finite number, not {chosen!r}")


class _OpenHub:
    """A hub on a loop of its own, opened with the first call; it closes at the process's end."""

    def __init__(self, config: RewardConfig) -> None:
        self._config = config
        self._opening = threading.Lock()
        self._open: tuple[Portal, JobHub] | None = None

    def rewards(
        self, samples: Sequence[Sample], on_abstain: float | str
    ) -> tuple[list[Reward], list[float]]:
        """The rewards of `samples`, and the number of each that OpenRLHF trains on."""
        portal, hub = self._opened()
        if on_abstain == "neutral":
            streamed = portal.call(lambda: side_by_side(hub.reward(sample) for sample in samples))
            return [each.reward for each in streamed], [each.number("train") for each in streamed]
        rewards = portal.call(lambda: side_by_side(hub.score(sample) for sample in samples))
        number = on_abstain if isinstance(on_abstain, float | int) else None
        return rewards, [wire.openrlhf_value(reward, number) for reward in rewards]

    def _opened(self) -> tuple[Portal, JobHub]:
        with self._opening:
            if self._open is None:
                portal, hub = Portal("zerowait-openrlhf"), JobHub(self._config)
                portal.call(hub.__aenter__)
                self._open = portal, hub
                atexit.register(self._close)
            return self._open

    def _close(self) -> None:
        if self._open is not None:
            portal, hub = self._open
            portal.call(hub.aclose)
            portal.close()
