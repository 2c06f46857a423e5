"""Reward manager for whole batches: a rule, a quality judge and a length penalty."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from zerowait.types import Reward, Sample, prompt_text
from zerowait.verl.batch.data_proto import (
    abstain_without_tokens,
    as_columns,
    as_tensor,
    samples_of_batch,
)
from zerowait.verl.batch.lazy_rewards import LazyRewards
from zerowait.verl.batch.settings import LengthPenaltyConfig
from zerowait.verl.batch.user_function import UserFunction

_LOG = logging.getLogger(__name__)


class LengthPenaltyRewardManager:
    """Rewards of a batch: ``score + quality - penalty_scale * penalty`` for each response.

    Called like verl's managers for batches. It opens at the first batch, and closes at exit, by
    `shutdown_workers`, or by ``with``.

    Args:
        tokenizer: decodes responses.
        num_examine: number of responses of each data source that are logged (level INFO) in all.
        compute_score: the rule: a function that takes verl's columns for one response or as lists,
            called in the calling thread; or the name of a scorer, such as ``module:function``,
            which gets a process and a deadline; None uses the rule for the row's data source.
        reward_fn_key: the column that names the data source.
        length_penalty_config: a `LengthPenaltyConfig`, or the mapping to make one.

    Raises:
        ConfigError: something in the settings is wrong, or the judge's key is missing.
    """

    def __init__(
        self,
        tokenizer: Any,
        num_examine: int = 0,
        compute_score: Callable[..., Any] | str | None = None,
        reward_fn_key: str = "data_source",
        length_penalty_config: LengthPenaltyConfig | Mapping[str, Any] | None = None,
    ) -> None:
        self.config = LengthPenaltyConfig.of(length_penalty_config)
        self._tokenizer = tokenizer
        self._source_key = reward_fn_key
        self._num_examine = num_examine
        self._examined: Counter[str] = Counter()
        self._function: UserFunction | None = None
        rule: Mapping[str, Any] | None = None
        if isinstance(compute_score, str):
            rule = {"scorer": compute_score}
        elif compute_score is not None:
            self._function = UserFunction(compute_score)
            rule = self._function.component
        self._rewards = LazyRewards(
            self.config.reward(rule),
            deadline_s=self.config.deadline_s,
            one_by_one=not self.config.use_async_io,
        )

    def __call__(self, data: Any, return_dict: bool = False) -> Any:  # noqa: FBT001, FBT002 - verl's signature
        """The rewards of a `DataProto`.

        Args:
            data: responses of shape (batch, response_length).
            return_dict: whether to return a mapping.

        Returns:
            A float32 tensor of shape (batch, response_length) with each reward at the last token
            that the model wrote; NaN where it abstained and no policy gave a number. With
            `return_dict`, a mapping with that tensor as ``reward_tensor``, and as
            ``reward_extra_info`` the reward's parts, lengths and ``abstained``, each as a list with
            one entry per row.

        Raises:
            DataError: rows lack what the reward needs, such as ``uid``.
            JudgementError: a judgement failed and its policy is ``raise``.
        """
        samples = samples_of_batch(
            data, self._tokenizer, source_key=self._source_key, shaped=self.config.enable
        )
        if self._function is not None:
            samples = self._function.scored(samples)
        rewards = abstain_without_tokens(data, self._rewards.score(samples))
        self._examine(samples, rewards)
        scores = as_tensor(data, rewards)
        if not return_dict:
            return scores
        return {"reward_tensor": scores, "reward_extra_info": as_columns(rewards)}

    def start_workers(self) -> None:
        """Open the engine now and not at the first batch. Idempotent."""
        if self.config.use_async_io:
            self._rewards.open()

    def shutdown_workers(self) -> None:
        """Close the engine; the next batch opens it again. Idempotent."""
        self._rewards.close()

    def __enter__(self) -> Self:
        self.start_workers()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown_workers()

    def _examine(self, samples: Sequence[Sample], rewards: Sequence[Reward]) -> None:
        for sample, reward in zip(samples, rewards, strict=True):
            if self._examined[sample.data_source] >= self._num_examine:
                continue
            self._examined[sample.data_source] += 1
            prompt, response = prompt_text(sample.prompt), sample.response
            _LOG.info(
                "[prompt] %s\n[response] %s\n[ground_truth] %s\n[reward] %s %s",
                *(prompt, response, sample.ground_truth, reward.value, reward.why),
            )
