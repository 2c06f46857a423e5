"""Reward function for OpenRLHF's ``--reward.remote_url rewards.py``, made by `reward_func`.

The file is two lines: ``from zerowait.openrlhf import reward_func as make`` and
``reward_func = make("reward.yaml")``. OpenRLHF imports it in each of its vLLM engines, so each has
limits of its own; with several engines run one ``zerowait serve`` and give OpenRLHF its address.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from zerowait.config import RewardConfig
from zerowait.hub.http import wire
from zerowait.hub.process import OnAbstain, ProcessHub, checked_on_abstain


def reward_func(
    config: str | Path | Mapping[str, Any] | RewardConfig,
    *,
    on_abstain: OnAbstain = "error",
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
    hub = ProcessHub(config)
    del config  # a mapping may hold a key
    checked_on_abstain(on_abstain)
    constants = {"data_source": data_source}
    if group_size is not None:
        constants["group_size"] = str(group_size)

    def computed(
        queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]
    ) -> dict[str, Any]:
        body = {"query": list(queries), "prompts": list(prompts), "labels": list(labels)}
        samples = wire.decode_openrlhf(msgspec.json.encode(body), constants)
        rewards, values = hub.numbers(samples, on_abstain).result()
        return wire.openrlhf_reply(rewards, values)

    return computed
