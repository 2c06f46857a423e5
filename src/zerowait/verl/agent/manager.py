"""verl's agent loop manager, with rewards placed on, and text taken from, the model's own tokens.

Selected with ``+actor_rollout_ref.rollout.agent.agent_loop_manager_class=
zerowait.verl.agent.manager.AgentLoopManager``, as ``zerowait train`` does. verl itself puts a
trajectory's reward on the last token of its response even if a tool wrote it, and gives reward
managers no mask.
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
from zerowait.verl.rows import TURN_REWARDS


class _RewardOnModelToken:
    """Mixin for an output's class: moves the reward from masked tokens to the model's last one."""

    def as_dict(self) -> dict[str, Any]:
        """This output's row in verl's queue."""
        row: dict[str, Any] = super().as_dict()  # type: ignore[misc]
        places = row["extra_fields"].pop(TURN_REWARDS, None)
        if "rm_scores" in row:
            row["rm_scores"] = move_to_model_tokens(row["rm_scores"], row["response_mask"])
            row["rm_scores"] = with_turn_rewards(row["rm_scores"], row["response_mask"], places)
        return row


def move_to_model_tokens(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The scores, with those on masked tokens added to the model's last token.

    Unchanged if the model wrote no token.

    Args:
        scores: rewards of shape (response_length,).
        mask: response mask of the same shape.
    """
    position = last_written(mask.tolist())
    if position is None:
        return scores
    moved = scores * mask
    moved[position] += (scores * (1 - mask)).sum()
    return moved


def with_turn_rewards(
    scores: torch.Tensor, mask: torch.Tensor, places: Sequence[tuple[int, float]] | None
) -> torch.Tensor:
    """The scores, of which a part is moved from the model's last token to turns' last tokens.

    Args:
        scores: rewards of shape (response_length,).
        mask: response mask of the same shape.
        places: (index in the response, reward) pairs, each a part of the whole reward.
    """
    last = last_written(mask.tolist())
    if not places or last is None:
        return scores
    moved = scores.clone()
    for token, reward in places:
        moved[last] -= reward
        moved[token] += reward
    return moved


def with_reward_on_model_token(output: AgentLoopOutput) -> AgentLoopOutput:
    """The same output, whose reward will be on the last token that the model wrote."""
    kind: type[AgentLoopOutput] = _rewarding_class(type(output))  # type: ignore[arg-type]
    if kind is type(output):
        return output
    return kind.model_construct(_fields_set=set(output.model_fields_set), **vars(output))


@cache
def _rewarding_class(kind: Any) -> Any:
    """The subclass of an output class that moves rewards; made once for each class."""
    if issubclass(kind, _RewardOnModelToken):
        return kind
    return type(kind.__name__, (_RewardOnModelToken, kind), {"__module__": __name__})


_LOG = logging.getLogger(__name__)


class AgentLoopRewardWorker(AgentLoopWorkerTQ.__ray_actor_class__):
    """verl's agent loop worker, which moves rewards and passes masks to the reward manager."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Defined here because Ray pickles inherited methods by value: `super()` in verl's own
        # constructor would refer to another class
        super().__init__(*args, **kwargs)

    async def _agent_loop_postprocess(self, output: Any, validate: bool, **kwargs: Any) -> None:  # noqa: FBT001 - verl's signature
        outputs = output if isinstance(output, list) else [output]
        await super()._agent_loop_postprocess(
            [with_reward_on_model_token(one) for one in outputs], validate, **kwargs
        )

    async def _compute_score(
        self, outputs: Sequence[AgentLoopOutput], kwargs: dict[str, Any]
    ) -> None:
        """As verl's, with each output's mask in its ``extra_fields`` for the reward manager."""
        originals = [one.extra_fields for one in outputs]
        for one in outputs:
            one.extra_fields = {**one.extra_fields, RESPONSE_MASK: list(one.response_mask)}
        try:
            await super()._compute_score(outputs, kwargs=kwargs)
        finally:
            for one, fields in zip(outputs, originals, strict=True):
                scored = one.extra_fields.get("reward_extra_info")
                one.extra_fields = fields
                if scored is not None:
                    fields["reward_extra_info"] = scored
                    if TURN_REWARDS in scored:
                        fields[TURN_REWARDS] = scored.pop(TURN_REWARDS)
        if all(last_written(one.response_mask) is None for one in outputs):
            _LOG.warning("%s_%s: %s", kwargs.get("uid"), kwargs.get("session_id"), NOTHING_WRITTEN)


class AgentLoopManager(AgentLoopManagerTQ):
    """verl's manager with `AgentLoopRewardWorker`s; derive your own manager from it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(AgentLoopRewardWorker)
