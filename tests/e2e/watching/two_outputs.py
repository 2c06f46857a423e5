"""An agent loop with two outputs to a trajectory, one of whose rollouts may fail."""

from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

FIRST_TOKENS, LAST_TOKENS = 12, 5


class TwoOutputs(AgentLoopBase):
    """A long output and a short one, to prompts of different lengths.

    Args:
        failing: the session of each training prompt that fails.
    """

    def __init__(self, *args, failing, **kwargs):
        super().__init__(*args, **kwargs)
        self._failing = failing

    async def run(self, sampling_params, **columns):
        if columns["extra_info"]["split"] == "train" and columns["session_id"] == self._failing:
            raise RuntimeError("this rollout fails on purpose")
        prompt = await self.ct_build_initial_tokens(list(columns["raw_prompt"]))
        first = await self._output(prompt + prompt[-1:], sampling_params, FIRST_TOKENS)
        return [first, await self._output(prompt, sampling_params, LAST_TOKENS)]

    async def _output(self, prompt, sampling_params, most):
        written = await self.server_manager.generate(
            request_id=uuid4().hex,
            prompt_ids=prompt,
            sampling_params={**sampling_params, "max_tokens": most},
        )
        return AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=written.token_ids,
            response_mask=[1] * len(written.token_ids),
            response_logprobs=written.log_probs,
            num_turns=2,
            metrics=AgentLoopMetrics(),
            extra_fields=written.extra_fields,
        )
