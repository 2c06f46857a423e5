"""Whether a step's gradient may be computed in parts, before its last reward. Imports no verl.

The parts of a step add up to the gradient of one update only where no loss looks at rows of other
groups and each normaliser is known for the step as a whole. The lists below name what was read in
verl 0.9.1 and holds; everything else has one update.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal

from zerowait.errors import ConfigError
from zerowait.verl.batch_sizes import data_parallel_ranks, rows_of_update
from zerowait.verl.estimators import estimator_in

EarlyGradients = Literal["auto", "on", "off"]
MODE: Final = "zerowait"
"""The trainer mode that can do it: in the asynchronous ones other groups are trained meanwhile."""

_ESTIMATORS: Final = ("grpo", "grpo_passk", "grpo_vectorized", "opo", "rloo", "rloo_vectorized")
"""Estimators in which a row's advantage depends on its own group only."""
_LOSSES: Final = ("vanilla", "cispo", "dppo_kl", "dppo_tv", "dro", "gspo", "sapo")
"""Policy losses that are a sum over rows, divided by a normaliser of the whole mini-batch."""
_ENGINE: Final = "fsdp2"
_ACTOR: Final = "actor_rollout_ref.actor"


def wants_early_gradients(config: Any, chosen: EarlyGradients) -> tuple[bool, str | None]:
    """Whether gradients are computed early, and why not where they are not.

    Args:
        config: verl's whole configuration.
        chosen: the setting ``early_gradients``.

    Raises:
        ConfigError: it is ``on``, and one update is needed; names the key that needs it.
    """
    if chosen == "off":
        return False, None
    why = needs_one_update(config)
    if why is not None and chosen == "on":
        raise ConfigError(
            f"reward.zerowait.early_gradients is on, and {why}: write auto, which takes one update "
            "there"
        )
    return why is None, why


def needs_one_update(config: Any) -> str | None:
    """The first setting with which parts would not add up to the gradient of one update."""
    reasons = (*_of_rows(config), *_of_loss(config), *_of_engine(config), _of_sizes(config))
    for why in reasons:
        if why is not None:
            return why
    return None


def _of_rows(config: Any) -> list[str | None]:
    """What makes an advantage depend on rows of other groups, or rows on a second update."""
    algorithm, actor = config.algorithm, config.actor_rollout_ref.actor
    estimator = estimator_in(config)
    correction = algorithm.get("rollout_correction") or {}
    critic = config.critic.get("enable")
    batch, mini = config.data.train_batch_size, actor.ppo_mini_batch_size
    return [
        None
        if estimator in _ESTIMATORS
        else f"algorithm.adv_estimator={estimator} looks at rows of other groups",
        f"critic.enable={critic} updates a critic first" if critic else None,
        None
        if batch == mini
        else f"{_ACTOR}.ppo_mini_batch_size={mini} is not data.train_batch_size={batch}, so that a "
        "step is not one update of its rows",
        None
        if actor.ppo_epochs == 1
        else f"{_ACTOR}.ppo_epochs={actor.ppo_epochs} updates several times in a step",
        "trainer.critic_warmup leaves out updates" if config.trainer.critic_warmup else None,
        "algorithm.kl_ctrl.type=adaptive follows the KL divergence of the whole step"
        if algorithm.use_kl_in_reward and algorithm.kl_ctrl.type != "fixed"
        else None,
        "algorithm.rollout_correction.rollout_rs rejects rows by their probabilities"
        if correction.get("rollout_rs")
        else None,
        "algorithm.rollout_correction.rollout_is_batch_normalize divides by a mean over the step"
        if correction.get("rollout_is") and correction.get("rollout_is_batch_normalize")
        else None,
        "algorithm.rollout_correction.bypass_mode has a loss of its own"
        if correction.get("bypass_mode")
        else None,
    ]


def _of_loss(config: Any) -> list[str | None]:
    """What makes the loss another one when it is summed over parts."""
    actor = config.actor_rollout_ref.actor
    loss = (actor.get("policy_loss") or {}).get("loss_mode", "vanilla")
    distillation = config.get("distillation") or {}
    return [
        None
        if loss in _LOSSES
        else f"{_ACTOR}.policy_loss.loss_mode={loss} is not a sum over rows",
        f"{_ACTOR}.policy_loss.loss_mode=sapo divides by rows, and the other terms of "
        f"{_ACTOR}.loss_agg_mode=token-mean by tokens, whose number a masked row changes"
        if loss == "sapo" and actor.loss_agg_mode == "token-mean"
        else None,
        f"{_ACTOR}.loss_agg_mode=seq-mean-token-sum-norm divides by the longest response of a "
        "micro-batch unless loss_scale_factor is set"
        if actor.loss_agg_mode == "seq-mean-token-sum-norm" and not actor.loss_scale_factor
        else None,
        "distillation.enabled has a loss of its own" if distillation.get("enabled") else None,
    ]


def _of_engine(config: Any) -> list[str | None]:
    """Engines and settings with which gradients have not been kept between two calls."""
    actor = config.actor_rollout_ref.actor
    fsdp = actor.get("fsdp_config") or {}
    offloads = [name for name in ("param_offload", "optimizer_offload") if fsdp.get(name)]
    return [
        None
        if actor.strategy == _ENGINE
        else f"{_ACTOR}.strategy={actor.strategy} is not {_ENGINE}, where this was tried",
        f"{_ACTOR}.fsdp_config.{offloads[0]} moves weights and optimizer for every part"
        if offloads
        else None,
    ]


def rows_of_pass(config: Any) -> int:
    """Rows that a device computes in one pass; 1 where passes are filled by tokens."""
    actor = config.actor_rollout_ref.actor
    return 1 if actor.use_dynamic_bsz else int(actor.ppo_micro_batch_size_per_gpu)


def _of_sizes(config: Any) -> str | None:
    """Whole groups that fill every device's passes, if there are no fewer than in the step."""
    ranks = data_parallel_ranks(config)
    micro = config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu
    if ranks is None or (micro is None and not config.actor_rollout_ref.actor.use_dynamic_bsz):
        return None  # refused elsewhere
    if math.lcm(ranks * rows_of_pass(config), int(config.actor_rollout_ref.rollout.n)) < (
        rows_of_update(config)
    ):
        return None
    return (
        f"data.train_batch_size={config.data.train_batch_size} is so small that no part of it has "
        f"whole groups of {config.actor_rollout_ref.rollout.n} responses for every pass on every "
        "device"
    )
