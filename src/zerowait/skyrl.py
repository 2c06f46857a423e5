"""Environment for SkyRL whose reward is a configuration's, made by `env_class`.

``skyrl_gym.register("zerowait", entry_point=zerowait.skyrl.env_class("reward.yaml"))``; the rows
of the data say ``env_class: zerowait``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zerowait.config import RewardConfig
from zerowait.errors import DataError
from zerowait.hub.process import OnAbstain, ProcessHub, checked_on_abstain
from zerowait.types import Sample


def env_class(
    config: str | Path | Mapping[str, Any] | RewardConfig,
    *,
    on_abstain: OnAbstain = "error",
    url: str | None = None,
    token: str | None = None,
) -> type:
    """A single-turn `BaseTextEnv` of SkyRL's: its step ends the episode with the reward.

    The gold answer is the row's ``reward_spec.ground_truth`` (``reward_model`` in verl's data);
    each component's score is a metric of the environment.

    Args:
        config: a path to a ``reward.yaml``, a mapping, or a `RewardConfig`.
        on_abstain: what a rollout that abstained gets, since SkyRL needs a number: ``neutral`` for
            the mean of the rewards so far (an environment does not know its group), a number of
            your choice, or ``error``, which stops the training.
        url: a running ``zerowait serve`` with the same configuration, which all generators share;
            None: each process has an engine of its own.
        token: the value of the service's ``--token-env`` variable.

    Raises:
        ConfigError: the configuration is wrong, or `on_abstain` is none of these.
    """
    from skyrl_gym.envs.base_text_env import BaseTextEnv

    hub = ProcessHub(config, url=url, token=token)
    del config, token  # a traceback may show local variables
    checked_on_abstain(on_abstain)

    class ZerowaitEnv(BaseTextEnv):  # type: ignore[misc]  # skyrl_gym has no types
        def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None:
            del env_config  # the reward.yaml says it all
            super().__init__()
            self._row = dict(extras or {})
            self._prompt: list[dict[str, Any]] = []
            self._metrics: dict[str, float] = {}

        def init(self, prompt: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
            self._prompt = list(prompt)
            return prompt, {}

        def step(self, action: str) -> dict[str, Any]:
            sample = _sample(self._prompt, action, self._row)
            [reward], [number] = hub.numbers([sample], on_abstain).result()
            found = {key: each for key, each in reward.metrics.items() if each is not None}
            self._metrics = found | {"abstained": float(reward.abstained)}
            return {"observations": [], "reward": number, "done": True, "metadata": {}}

        def get_metrics(self) -> dict[str, float]:
            return self._metrics

    return ZerowaitEnv


def _sample(prompt: list[dict[str, Any]], response: str, row: Mapping[str, Any]) -> Sample:
    spec = row.get("reward_spec") or row.get("reward_model") or {}
    if not isinstance(spec, Mapping):
        raise DataError(f"reward_spec has to be a mapping with ground_truth, not {spec!r:.80}")
    return Sample(
        prompt=prompt,
        response=response,
        ground_truth=spec.get("ground_truth"),
        data_source=str(row.get("data_source") or ""),
        extra=dict(row),
    )
