"""What an agent loop hands to verl, with its reward on the last token that the model wrote."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from zerowait.verl.response_mask import last_written


class _OnOwnTokens:
    """Mixed into an output's class: what verl puts on masked tokens moves to the model's last."""

    def as_dict(self) -> dict[str, Any]:
        """The row of this output in verl's queue."""
        row: dict[str, Any] = super().as_dict()  # type: ignore[misc]
        if "rm_scores" in row:
            row["rm_scores"] = on_own_tokens(row["rm_scores"], row["response_mask"])
        return row


def on_own_tokens(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Scores (response_length,) with what stands on masked tokens on the model's last one.

    As they are where the model wrote no token.
    """
    place = last_written(mask.tolist())
    if place is None:
        return scores
    moved = scores * mask
    moved[place] += (scores * (1 - mask)).sum()
    return moved


def placed(output: AgentLoopOutput) -> AgentLoopOutput:
    """The same output, whose reward will stand on the last token that the model wrote."""
    kind: type[AgentLoopOutput] = _placing(type(output))  # type: ignore[arg-type]
    if kind is type(output):
        return output
    return kind.model_construct(_fields_set=set(output.model_fields_set), **vars(output))


@cache
def _placing(kind: Any) -> Any:
    """A subclass that places rewards; one for each class, however many outputs there are."""
    if issubclass(kind, _OnOwnTokens):
        return kind
    return type(kind.__name__, (_OnOwnTokens, kind), {"__module__": __name__})
