"""verl's reward manager ``zerowait``: sends each finished trajectory to the job's hub.

Selected with ``reward.reward_manager.name=zerowait`` and configured with::

    +reward.zerowait.config=/path/reward.yaml     # or recipe.yaml#reward
    +reward.zerowait.record=/path/run             # optional: rewards.jsonl and stats.jsonl

Under verl's own trainers `RewardManager.run_single` waits for the reward. Under the trainer modes
``zerowait...`` the row gets a ticket at once, which the trainer redeems when it needs the reward.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

from verl import DataProto
from verl.experimental.reward_loop.reward_manager import register
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

from zerowait.config import load_config
from zerowait.errors import ConfigError
from zerowait.hub.ray import RayHub, RayTickets
from zerowait.pictures import with_urls
from zerowait.types import Sample
from zerowait.verl.agent_loop_check import check_agent_loop
from zerowait.verl.rewards.episode_metrics import episode_info
from zerowait.verl.rewards.reward_info import RowInfo, extra_info
from zerowait.verl.rewards.sampled_batches import SampledRows, filters_groups
from zerowait.verl.rewards.settings import gives_tickets, settings_in
from zerowait.verl.rewards.streaming_rules import check_streaming
from zerowait.verl.rewards.tickets import PLACEHOLDER, ticket
from zerowait.verl.rewards.turn_rewards import pays_by_turn, turn_columns
from zerowait.verl.rewards.verl_judge import check_router, check_verls_model
from zerowait.verl.rows import (
    episode_in,
    extra_in,
    plain_values,
    truth_in,
    written_by_model,
)
from zerowait.verl.trainer_modes import STOPPABLE_MODES

SPLIT: Final = "split"
GROUP_SIZE: Final = "group_size"


def sample_of(outputs: Any, tokenizer: Any) -> Sample:
    """The `Sample` of a trajectory: the model's own text in its last output.

    Every output of the trajectory gets this sample's reward.

    Args:
        outputs: verl's `DataProto` of the trajectory, one row for each output; ``responses`` has
            shape (outputs, response_length), ``attention_mask`` (outputs, prompt + response).
        tokenizer: the policy's.

    Raises:
        ConfigError: the rows have no split and group size, or as `written_by_model`.
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
        prompt=_prompt(columns["raw_prompt"]),
        response=written.text,
        ground_truth=truth_in(columns, where),
        data_source=str(columns.get("data_source", "")),
        group=str(columns["uid"]),
        response_tokens=written.tokens,
        extra=written.extra
        | {key: value for key, value in extra.items() if key not in (SPLIT, GROUP_SIZE)}
        | episode_in(columns),
        id=name,
        group_size=int(extra[GROUP_SIZE]),
        split=str(extra[SPLIT]),
        step=int(columns["global_steps"]) if "global_steps" in columns else None,
        response_messages=written.messages,
    )


def _prompt(raw_prompt: Any) -> Any:
    """The row's chat messages in plain values, its pictures as URLs; files are the user's own."""
    messages = plain_values(raw_prompt)
    if isinstance(messages, list) and any(_has_parts(message) for message in messages):
        return with_urls(messages, folder=Path())
    return messages


def _has_parts(message: Any) -> bool:
    return isinstance(message, dict) and isinstance(message.get("content"), list)


def _length(row: Any) -> int:
    """Number of tokens in the response, from ``response_len`` or else the attention mask.

    verl pads several outputs, their prompts included, on the right, and the mask begins with each
    row's prompt: only in the widest row does the end of the mask belong to the response.
    """
    length = row.non_tensor_batch.get("response_len")
    if length is not None:
        return int(length)
    return int(row.batch["attention_mask"][-row.batch["responses"].shape[-1] :].sum())


@register("zerowait")
class RewardManager(RewardManagerBase):
    """Scores one trajectory at a time; under verl's own trainers every training score is finite.

    Args:
        config: verl's whole configuration.
        tokenizer: the policy's.
        compute_score, reward_model_tokenizer: verl's, not used.
        reward_router_address: of the reward model that verl serves, if it does; the hub asks a
            reward worker for it.

    Raises:
        ConfigError: ``reward.zerowait.config`` is missing or wrong, or asks for something that
            verl's own trainer cannot do.
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
        del reward_model_tokenizer
        settings = settings_in(config)
        check_agent_loop(config)
        rewards = load_config(settings.config)
        check_verls_model(rewards, config)
        check_router(rewards, reward_router_address)
        self._hub: RayHub | RayTickets
        self._sampled: SampledRows | None = None
        self._pays_by_turn = False
        if gives_tickets(config):
            self._hub = RayTickets(settings.config, record=settings.record)
        else:
            check_streaming(settings.config, config)
            self._pays_by_turn = pays_by_turn(rewards)
            if str(config.trainer.v1.trainer_mode) in STOPPABLE_MODES:
                self._sampled = _sampled_rows(config, settings.max_sampled_batches)
            self._hub = RayHub(settings.config, record=settings.record)

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """``reward_score`` and ``reward_extra_info`` of a trajectory, with the same keys each time.

        The score is finite in training, and NaN in a validation without a judged value.
        """
        sample = sample_of(data, self.tokenizer)
        if isinstance(self._hub, RayTickets):
            await self._hub.deposit(sample)
            return {"reward_score": PLACEHOLDER, "reward_extra_info": ticket(sample)}
        if self._sampled is not None:
            self._sampled.add(sample)
        streamed = await self._hub.reward(sample)
        columns = extra_info(streamed.reward, substitute_source=streamed.substitute_from)
        if self._pays_by_turn:
            columns |= turn_columns(streamed.reward)
        info = RowInfo(columns | episode_info(sample))
        # verl has no row without a score; in validation it only takes means, which become NaN
        return {"reward_score": streamed.number(sample.split), "reward_extra_info": info}


def _sampled_rows(config: Any, most: int) -> SampledRows | None:
    """The counter that stops endless sampling, where verl replaces groups by their rewards."""
    if not filters_groups(config.algorithm):
        return None
    responses = int(config.data.train_batch_size) * int(config.actor_rollout_ref.rollout.n)
    return SampledRows(batch=responses, workers=int(config.reward.num_workers), most=most)
