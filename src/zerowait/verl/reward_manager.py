"""verl's reward manager ``zerowait``: each finished trajectory goes to the job's hub.

Selected with ``reward.reward_manager.name=zerowait`` and configured with::

    +reward.zerowait.config=/path/reward.yaml     # or recipe.yaml#reward
    +reward.zerowait.record=/path/run             # optional: rewards.jsonl and stats.jsonl

Under verl's own trainers a row waits for its reward here. Under the trainer mode ``zerowait`` it
gets a ticket at once, and the trainer fetches the reward when it needs it.
"""

from __future__ import annotations

from typing import Any

from verl import DataProto
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from zerowait.hub.ray import RayHub
from zerowait.hub.ray_tickets import RayTickets
from zerowait.verl.agent_loop_check import check_agent_loop
from zerowait.verl.episode_metrics import episode_info
from zerowait.verl.modes import STOPPED_WHEN_SAMPLING
from zerowait.verl.rows import RowInfo, extra_info
from zerowait.verl.sampled import SampledRows, filters_groups
from zerowait.verl.streaming_rules import check_streaming
from zerowait.verl.ticket import PLACEHOLDER, gives_tickets, settings_in, ticket
from zerowait.verl.trajectory import sample_of


@register("zerowait")
class RewardManager(RewardManagerBase):
    """Rewards under verl's own trainers, one row at a time; in training always finite.

    Raises:
        ConfigError: ``reward.zerowait.config`` is missing or wrong, or asks for something that a
            streaming trainer cannot do.
    """

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: Any = None,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
    ) -> None:
        super().__init__(config, tokenizer, compute_score)
        del reward_router_address, reward_model_tokenizer
        settings = settings_in(config)
        check_agent_loop(config)
        self._hub: RayHub | RayTickets
        self._sampled: SampledRows | None = None
        if gives_tickets(config):
            self._hub = RayTickets(settings.config, record=settings.record)
        else:
            check_streaming(settings.config, config)
            if str(config.trainer.v1.trainer_mode) in STOPPED_WHEN_SAMPLING:
                self._sampled = _sampled_rows(config, settings.max_sampled_batches)
            self._hub = RayHub(settings.config, record=settings.record)

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """``reward_score`` and ``reward_extra_info``, with the same keys for every row.

        The score is finite in training; in a validation of which nothing was judged it is NaN.
        """
        sample = sample_of(data, self.tokenizer)
        if isinstance(self._hub, RayTickets):
            await self._hub.deposit(sample)
            return {"reward_score": PLACEHOLDER, "reward_extra_info": ticket(sample)}
        if self._sampled is not None:
            self._sampled.add(sample)
        streamed = await self._hub.reward(sample)
        told = extra_info(streamed.reward, stand_in=streamed.stand_in)
        info = RowInfo(told | episode_info(sample))
        # verl has no row without a score; of a validation it takes means, which NaN says are none
        return {"reward_score": streamed.number(sample.split), "reward_extra_info": info}


def _sampled_rows(config: Any, most: int) -> SampledRows | None:
    """Counts the responses of a step, where verl's trainer replaces groups by their rewards."""
    if not filters_groups(config.algorithm):
        return None
    responses = int(config.data.train_batch_size) * int(config.actor_rollout_ref.rollout.n)
    return SampledRows(batch=responses, workers=int(config.reward.num_workers), most=most)
