"""An agent loop whose tool writes the right answer behind each few tokens of the model's."""

from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

TURNS = 2
TURN_TOKENS = 4


class ToolLoop(AgentLoopBase):
    """It says neither what the model wrote nor how much, but in verl's own mask."""

    async def run(self, sampling_params, **columns):
        prompt = await self.ct_build_initial_tokens(list(columns["raw_prompt"]))
        gold = columns["reward_model"]["ground_truth"]
        right = gold[0] if isinstance(gold, list) else gold
        tool = self.tokenizer.encode(f"<answer>{right}</answer>", add_special_tokens=False)
        response, mask, log_probs, fields = [], [], [], {}
        for _ in range(TURNS):
            written = await self.server_manager.generate(
                request_id=uuid4().hex,
                prompt_ids=[*prompt, *response],
                sampling_params={**sampling_params, "max_tokens": TURN_TOKENS},
            )
            response += [*written.token_ids, *tool]
            mask += [1] * len(written.token_ids) + [0] * len(tool)
            log_probs += [*written.log_probs, *[0.0] * len(tool)]
            fields = fields or written.extra_fields
        return AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=response,
            response_mask=mask,
            response_logprobs=log_probs,
            num_turns=4,
            metrics=AgentLoopMetrics(),
            extra_fields=fields,
        )
