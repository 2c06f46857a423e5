"""verl's agent loop workers, with rewards and judged text kept to the tokens that the model wrote.

Chosen with ``+actor_rollout_ref.rollout.agent.agent_loop_manager_class=
zerowait.verl.agent.manager.AgentLoopManager``, as ``zerowait train`` does. verl itself puts a
trajectory's reward on the last token of its response, whoever wrote that, and gives reward managers
no mask.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

import ray
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from zerowait.verl.response_mask import NOTHING_WRITTEN, RESPONSE_MASK, last_written


class _RewardOnModelToken:
    """Mixed into an output's class: what verl puts on masked tokens moves to the model's last."""

    def as_dict(self) -> dict[str, Any]:
        """The row of this output in verl's queue."""
        row: dict[str, Any] = super().as_dict()  # type: ignore[misc]
        if "rm_scores" in row:
            row["rm_scores"] = move_to_model_tokens(row["rm_scores"], row["response_mask"])
        return row


def move_to_model_tokens(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Scores (response_length,) with what stands on masked tokens on the model's last one.

    As they are where the model wrote no token.
    """
    place = last_written(mask.tolist())
    if place is None:
        return scores
    moved = scores * mask
    moved[place] += (scores * (1 - mask)).sum()
    return moved


def with_reward_on_model_token(output: AgentLoopOutput) -> AgentLoopOutput:
    """The same output, whose reward will stand on the last token that the model wrote."""
    kind: type[AgentLoopOutput] = _rewarding_class(type(output))  # type: ignore[arg-type]
    if kind is type(output):
        return output
    return kind.model_construct(_fields_set=set(output.model_fields_set), **vars(output))


@cache
def _rewarding_class(kind: Any) -> Any:
    """A subclass that places rewards; one for each class, however many outputs there are."""
    if issubclass(kind, _RewardOnModelToken):
        return kind
    return type(kind.__name__, (_RewardOnModelToken, kind), {"__module__": __name__})


_LOG = logging.getLogger(__name__)


class AgentLoopRewardWorker(AgentLoopWorkerTQ.__ray_actor_class__):
    """verl's worker, for any agent loop."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Ray sends what is inherited by value, so that `super` in verl's own would be another class
        super().__init__(*args, **kwargs)

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **kwargs: Any) -> None:  # noqa: FBT001 - verl's face
        outputs = output if isinstance(output, list) else [output]
        await super()._agent_loop_postprocess(
            [with_reward_on_model_token(one) for one in outputs], validate, **kwargs
        )

    async def _compute_score(
        self, outputs: Sequence[AgentLoopOutput], kwargs: dict[str, Any]
    ) -> None:
        """As verl's; the reward manager finds each output's mask in its ``extra_fields``."""
        theirs = [one.extra_fields for one in outputs]
        for one in outputs:
            one.extra_fields = {**one.extra_fields, RESPONSE_MASK: list(one.response_mask)}
        try:
            await super()._compute_score(outputs, kwargs=kwargs)
        finally:
            for one, fields in zip(outputs, theirs, strict=True):
                scored = one.extra_fields.get("reward_extra_info")
                one.extra_fields = fields
                if scored is not None:
                    fields["reward_extra_info"] = scored
        if all(last_written(one.response_mask) is None for one in outputs):
            _LOG.warning("%s_%s: %s", kwargs.get("uid"), kwargs.get("session_id"), NOTHING_WRITTEN)


class AgentLoopManager(AgentLoopManagerTQ):
    """verl's manager of such workers; to be derived from where one of your own is needed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(AgentLoopRewardWorker)
