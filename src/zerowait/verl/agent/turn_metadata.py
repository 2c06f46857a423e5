"""What the rollout engine says beside the tokens of a trajectory's turns, for the whole of it."""

from __future__ import annotations

from typing import Any, Final

from verl.workers.rollout.replica import TokenOutput

_SUMMED: Final = ("spec_num_draft_tokens", "spec_num_accepted_tokens", "spec_num_verify_steps")
_LATEST: Final = "max_global_steps"
_ABORTED: Final = frozenset({"aborted", "abort"})


class TurnMetadata:
    """Gathers the turns' reports as verl's own agent loops do.

    `fields` are those of the first turn, and so is the version of the weights with which the
    trajectory began; the version with which it ended is the last turn's, and what speculative
    decoding counts is summed. `routed_experts` are the last turn's, which cover all tokens before.
    """

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.num_preempted = -1
        self.routed_experts: Any = None
        self._turns = 0

    def add(self, output: TokenOutput) -> None:
        """One more turn."""
        said = output.extra_fields
        if self._turns == 0:
            self.fields.update(said)
            self.num_preempted = -1 if output.num_preempted is None else output.num_preempted
        else:
            if said.get(_LATEST) is not None:
                self.fields[_LATEST] = said[_LATEST]
            for key in _SUMMED:
                if key in said and key in self.fields:
                    self.fields[key] = int(self.fields[key]) + int(said[key])
            self.num_preempted += output.num_preempted or 0
        if output.routed_experts is not None:
            self.routed_experts = output.routed_experts
        self._turns += 1


def was_aborted(output: TokenOutput) -> bool:
    """Whether the engine ended the turn before the model did; engines spell it in two ways."""
    return output.stop_reason in _ABORTED
