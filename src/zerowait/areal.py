"""AReaL's `RLVRWorkflow` with a reward configuration in the place of its reward function.

``trainer.train(workflow="zerowait.areal.RLVRWorkflow", workflow_kwargs={"config": "reward.yaml",
"gconfig": ..., "tokenizer": ...})``

AReaL runs a reward function in a pool of processes and, after 15 seconds four times over, takes 0
for its value. This workflow awaits the reward instead, and returns no trajectory where it abstains:
AReaL then trains on the group's others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zerowait.config import RewardConfig
from zerowait.errors import ConfigError, JudgementError
from zerowait.hub.process import ProcessHub, gold_column
from zerowait.types import Sample

try:
    from areal.workflow.rlvr import RLVRWorkflow as RewardFunctionWorkflow
except ModuleNotFoundError as error:
    if error.name != "areal":
        raise
    RewardFunctionWorkflow = object  # so that the module can be read without AReaL


class RLVRWorkflow(RewardFunctionWorkflow):  # type: ignore[misc]  # areal has no types
    """Single-turn rollouts whose reward is computed as a configuration says.

    Args:
        config: a path to a ``reward.yaml``, a mapping, or a `RewardConfig`.
        ground_truth: the field of the data with the gold answer; None: the first that it has of
            ``ground_truth``, ``solution`` and ``answer``.
        url: a running ``zerowait serve`` with the same configuration, which all rollout workers
            share; None: each has an engine of its own.
        token: the value of the service's ``--token-env`` variable.
        workflow: what AReaL's own workflow takes: ``gconfig``, ``tokenizer``, ``enable_thinking``.

    Raises:
        ConfigError: the configuration is wrong, or AReaL is not installed.
    """

    def __init__(
        self,
        config: str | Path | Mapping[str, Any] | RewardConfig,
        *,
        ground_truth: str | None = None,
        url: str | None = None,
        token: str | None = None,
        **workflow: Any,
    ) -> None:
        if RewardFunctionWorkflow is object:
            raise ConfigError(
                "zerowait.areal needs AReaL, which is not installed: pip install areal"
            )
        self._hub = ProcessHub(config, url=url, token=token)
        del config, token  # a traceback may show local variables
        self._ground_truth = ground_truth
        super().__init__(reward_fn="", **workflow)
        self.reward_fn = self.async_reward_fn = self._reward

    async def arun_episode(self, engine: Any, data: dict[str, Any]) -> dict[str, Any] | None:
        """AReaL's trajectory of one rollout; None where its reward abstained."""
        try:
            trajectory: dict[str, Any] = await super().arun_episode(engine, data)
        except _AbstainedError:
            return None
        return trajectory

    async def _reward(
        self,
        _prompt: str,
        _completion: str,
        _prompt_ids: Sequence[int],
        completion_ids: Sequence[int],
        **data: Any,
    ) -> float:
        column = gold_column(data, self._ground_truth, "the data has no field")
        text = self.tokenizer.decode(completion_ids, skip_special_tokens=True)
        sample = Sample(
            prompt=self.data_extract_prompt_fn(data),
            response=text,
            ground_truth=None if column is None else data[column],
            response_tokens=len(completion_ids),
            extra=data,
        )
        reward = await self._hub.score(sample)
        if reward.value is None:
            raise _AbstainedError(f"no reward was reached: {reward.why}")
        return reward.value


class _AbstainedError(JudgementError):
    """Ends the episode of a rollout without a reward; AReaL does not see it."""
