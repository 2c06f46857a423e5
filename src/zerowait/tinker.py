"""Reward function for environments of the Tinker cookbook, made by `reward_fn`.

``judged = zerowait.tinker.reward_fn("reward.yaml")``, then for each task
``build_agent_tool_env(..., reward_fn=judged(ground_truth="Paris"))``.

Where the reward abstains, the function raises: the cookbook's ``rollout_error_tolerance`` then
retries the rollout, or leaves it out of its group. It never counts as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zerowait.config import RewardConfig
from zerowait.errors import DataError, JudgementError
from zerowait.hub.process import ProcessHub
from zerowait.types import Sample, Score, assistant_turns, content_text


def reward_fn(
    config: str | Path | Mapping[str, Any] | RewardConfig,
    *,
    url: str | None = None,
    token: str | None = None,
) -> Callable[..., TaskReward]:
    """Makes the reward function of a task: called with `TaskReward`'s keywords.

    Args:
        config: a path to a ``reward.yaml``, a mapping, or a `RewardConfig`.
        url: a running ``zerowait serve`` with the same configuration, which all processes share;
            None: each process has an engine of its own.
        token: the value of the service's ``--token-env`` variable.

    Raises:
        ConfigError: the configuration is wrong.
    """
    hub = ProcessHub(config, url=url, token=token)
    del config, token  # a traceback may show local variables

    def of_task(**task: Any) -> TaskReward:
        return TaskReward(hub, **task)

    return of_task


@dataclass(frozen=True, kw_only=True)
class TaskReward:
    """A `RewardFn` of the cookbook's: awaited with the messages of an episode, once at its end.

    Args:
        ground_truth: the task's gold answer.
        prompt: the task's messages, where the cookbook passes only those of the rollout; None:
            those before the first of the assistant's.
        data_source: selects the rule in ``by_data_source``.
        extra: further fields of the task.
    """

    hub: ProcessHub = field(kw_only=False, repr=False)
    ground_truth: Any = None
    prompt: Sequence[Mapping[str, Any]] | None = None
    data_source: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    async def __call__(
        self, history: Sequence[Mapping[str, Any]]
    ) -> tuple[float, dict[str, float]]:
        """The reward, and each component's score.

        Raises:
            JudgementError: the reward abstained.
            DataError: the episode has no message of the assistant's.
        """
        turns = assistant_turns(history)
        if not turns:
            raise DataError("the episode has no message whose role is assistant")
        prompt = list(history[: turns[0]] or self.prompt or [])
        reward = await self.hub.score(
            Sample(
                prompt=[_plain(message) for message in prompt],
                response=[_plain(message) for message in history[turns[0] :]],
                ground_truth=self.ground_truth,
                data_source=self.data_source,
                extra=dict(self.extra),
            )
        )
        if reward.value is None:
            raise JudgementError(f"no reward was reached: {reward.why}")
        scores = {
            f"zerowait/{name}": outcome.value
            for name, outcome in reward.components.items()
            if isinstance(outcome, Score)
        }
        return reward.value, scores


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """Role and text of a message; thoughts and parsed tool calls are the cookbook's own objects."""
    return {"role": message["role"], "content": content_text(message.get("content"))}
