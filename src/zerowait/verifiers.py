"""Reward method for tasks of verifiers (0.4 and later), which prime-rl and others train on.

``class MyTask(vf.Task[MyData]): judged = zerowait.verifiers.reward("reward.yaml")``

Where the reward abstains, the method raises: verifiers then records a `TaskError` on the trace, its
own way of saying that a rollout was not scored, and never a reward of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerowait.config import RewardConfig
from zerowait.errors import JudgementError
from zerowait.hub.process import ProcessHub, gold_column
from zerowait.types import Sample, Score

if TYPE_CHECKING:
    from verifiers import v1 as vf


def reward(
    config: str | Path | Mapping[str, Any] | RewardConfig,
    *,
    ground_truth: str | None = None,
    weight: float = 1.0,
    url: str | None = None,
    token: str | None = None,
) -> Callable[..., Any]:
    """A method for a `vf.Task`, decorated with `vf.reward`, that computes a trace's reward.

    Each component's score is recorded as a metric of the trace.

    Args:
        config: a path to a ``reward.yaml``, a mapping, or a `RewardConfig`.
        ground_truth: the field of the task's data with the gold answer; None: ``answer``, where the
            data has it.
        weight: of this reward in verifiers' sum.
        url: a running ``zerowait serve`` with the same configuration, which all processes share;
            None: each process has an engine of its own.
        token: the value of the service's ``--token-env`` variable.

    Raises:
        ConfigError: the configuration is wrong.
    """
    from verifiers import v1 as vf

    hub = ProcessHub(config, url=url, token=token)
    del config, token  # a traceback may show local variables

    async def zerowait(self: vf.Task, trace: vf.Trace) -> float:
        """The reward of the root agent's last reply; a failed judgement raises."""
        scored = await hub.score(_sample(self.data, trace, ground_truth))
        for name, outcome in scored.components.items():
            if isinstance(outcome, Score):
                trace.record_metric(f"zerowait/{name}", outcome.value)
        if scored.value is None:
            raise JudgementError(f"no reward was reached: {scored.why}")
        return scored.value

    method: Callable[..., Any] = vf.reward(zerowait, weight=weight)
    return method


def _sample(data: vf.TaskData, trace: vf.Trace, ground_truth: str | None) -> Sample:
    fields = data.model_dump(mode="json", exclude={"prompt"}, exclude_none=True)
    lacking = "the task's data has no field"
    column = gold_column(fields, ground_truth, lacking, usual=["answer"])
    prompt = data.prompt
    return Sample(
        prompt=prompt if isinstance(prompt, str) else [_message(each) for each in prompt or []],
        response=trace.last_reply,
        ground_truth=None if column is None else fields[column],
        id=data.id,
        extra=fields,
    )


def _message(message: Any) -> dict[str, Any]:
    fields: dict[str, Any] = message.model_dump(mode="json", exclude_none=True)
    return fields
