"""Combine the rollout engine's metadata of a trajectory's turns (everything but the tokens)."""

from __future__ import annotations

from typing import Any, Final

from verl.workers.rollout.replica import TokenOutput

_SUMMED: Final = ("spec_num_draft_tokens", "spec_num_accepted_tokens", "spec_num_verify_steps")
_LATEST: Final = "max_global_steps"
_ABORTED: Final = frozenset({"aborted", "abort"})


class TurnMetadata:
    """Combines the metadata of turns as verl's own agent loops do.

    Attributes:
        fields: the first turn's ``extra_fields``, with the first version of the weights; the last
            version is the last turn's, and counts of speculative decoding are summed.
        num_preempted: preemptions over all turns; -1 if unknown.
        routed_experts: the last turn's, which cover all tokens before it.
    """

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.num_preempted = -1
        self.routed_experts: Any = None
        self._turns = 0

    def add(self, output: TokenOutput) -> None:
        """Add the metadata of one more turn."""
        fields = output.extra_fields
        if self._turns == 0:
            self.fields.update(fields)
            self.num_preempted = -1 if output.num_preempted is None else output.num_preempted
        else:
            if fields.get(_LATEST) is not None:
                self.fields[_LATEST] = fields[_LATEST]
            for key in _SUMMED:
                if key in fields and key in self.fields:
                    self.fields[key] = int(self.fields[key]) + int(fields[key])
            self.num_preempted += output.num_preempted or 0
        if output.routed_experts is not None:
            self.routed_experts = output.routed_experts
        self._turns += 1


def was_aborted(output: TokenOutput) -> bool:
    """Whether the engine aborted the turn; engines use two spellings."""
    return output.stop_reason in _ABORTED
