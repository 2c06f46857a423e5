"""An agent loop whose tool writes the right answer, behind a few tokens of the model's."""

from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

MODEL_TOKENS = 4


class ToolLoop(AgentLoopBase):
    """It says neither what the model wrote nor how much, but in verl's own mask."""

    async def run(self, sampling_params, **columns):
        prompt = await self.ct_build_initial_tokens(list(columns["raw_prompt"]))
        written = await self.server_manager.generate(
            request_id=uuid4().hex,
            prompt_ids=prompt,
            sampling_params={**sampling_params, "max_tokens": MODEL_TOKENS},
        )
        gold = columns["reward_model"]["ground_truth"]
        right = gold[0] if isinstance(gold, list) else gold
        tool = self.tokenizer.encode(f"<answer>{right}</answer>", add_special_tokens=False)
        return AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=[*written.token_ids, *tool],
            response_mask=[1] * len(written.token_ids) + [0] * len(tool),
            response_logprobs=[*written.log_probs, *[0.0] * len(tool)],
            num_turns=4,
            metrics=AgentLoopMetrics(),
            extra_fields=written.extra_fields,
        )
