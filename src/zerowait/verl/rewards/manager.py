"""verl's reward manager ``zerowait``: each finished trajectory goes to the job's hub.

Selected with ``reward.reward_manager.name=zerowait`` and configured with::

    +reward.zerowait.config=/path/reward.yaml     # or recipe.yaml#reward
    +reward.zerowait.record=/path/run             # optional: rewards.jsonl and stats.jsonl

Under verl's own trainers a row waits for its reward here. Under the trainer mode ``zerowait`` it
gets a ticket at once, and the trainer fetches the reward when it needs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from verl import DataProto
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from zerowait.errors import ConfigError
from zerowait.hub.ray import RayHub, RayTickets
from zerowait.types import Sample
from zerowait.verl.agent_loop_check import check_agent_loop
from zerowait.verl.modes import STOPPED_WHEN_SAMPLING
from zerowait.verl.rewards.metrics import episode_info
from zerowait.verl.rewards.rows import (
    RowInfo,
    episode_in,
    extra_in,
    extra_info,
    plain_values,
    truth_in,
    written_by_model,
)
from zerowait.verl.rewards.sampled_batches import SampledRows, filters_groups
from zerowait.verl.rewards.streaming_rules import check_streaming
from zerowait.verl.rewards.tickets import PLACEHOLDER, gives_tickets, settings_in, ticket

SPLIT: Final = "split"
GROUP_SIZE: Final = "group_size"


def sample_of(outputs: Any, tokenizer: Any) -> Sample:
    """What is rewarded of a trajectory: what the model wrote in its last output.

    Every output of the trajectory gets this reward.

    Args:
        outputs: verl's `DataProto` of the trajectory, a row for each output.
        tokenizer: of the policy.

    Raises:
        ConfigError: the rows carry no stamps, or as `written_by_model`.
        DataError: as `truth_in` and `extra_in`.
    """
    row = outputs[-1]
    columns = row.non_tensor_batch
    name = f"{columns['uid']}_{columns.get('session_id', 0)}"
    where = f"response {name}"
    extra = extra_in(columns, where)
    if SPLIT not in extra or GROUP_SIZE not in extra:
        raise ConfigError(
            "rows carry no split and group size: set data.custom_cls.path="
            "pkg://zerowait.verl.dataset data.custom_cls.name=RewardDataset"
        )
    tokens = row.batch["responses"][: _length(row)]
    written = written_by_model(columns, tokens, partial(tokenizer.decode, skip_special_tokens=True))
    return Sample(
        prompt=plain_values(columns["raw_prompt"]),
        response=written.text,
        ground_truth=truth_in(columns, where),
        data_source=str(columns.get("data_source", "")),
        group=str(columns["uid"]),
        response_tokens=written.tokens,
        extra=written.extra | _without_stamps(extra) | episode_in(columns),
        id=name,
        group_size=int(extra[GROUP_SIZE]),
        split=str(extra[SPLIT]),
        step=int(columns["global_steps"]) if "global_steps" in columns else None,
    )


def _length(row: Any) -> int:
    """How many tokens the response has.

    verl sends several outputs padded on the right, prompts too, and its mask begins at each row's
    prompt: the end of the mask belongs to the response in the widest row alone.
    """
    told = row.non_tensor_batch.get("response_len")
    if told is not None:
        return int(told)
    return int(row.batch["attention_mask"][-row.batch["responses"].shape[-1] :].sum())


def _without_stamps(extra: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in extra.items() if key not in (SPLIT, GROUP_SIZE)}


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
        told = extra_info(streamed.reward, stand_in=streamed.substitute_from)
        info = RowInfo(told | episode_info(sample))
        # verl has no row without a score; of a validation it takes means, which NaN says are none
        return {"reward_score": streamed.number(sample.split), "reward_extra_info": info}


def _sampled_rows(config: Any, most: int) -> SampledRows | None:
    """Counts the responses of a step, where verl's trainer replaces groups by their rewards."""
    if not filters_groups(config.algorithm):
        return None
    responses = int(config.data.train_batch_size) * int(config.actor_rollout_ref.rollout.n)
    return SampledRows(batch=responses, workers=int(config.reward.num_workers), most=most)
