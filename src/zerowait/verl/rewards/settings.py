"""The section ``reward.zerowait`` of verl's configuration: reward file, record, limits of a step.

Imports neither verl nor Ray, so that `zerowait train` can read it before anything is started.
"""

from __future__ import annotations

import math
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from zerowait.errors import ConfigError, did_you_mean
from zerowait.verl.early_gradients import MODE, EarlyGradients
from zerowait.verl.trainer_modes import BASE_MODES, STOPPABLE_MODES

REDEEM_S: Final = 600.0
MAX_ABSTAINED: Final = 0.5
MAX_SAMPLED_BATCHES: Final = 20
"""A policy that is right or wrong throughout in nine of ten groups needs ten batches for a step."""
_OF_TICKETS: Final = ("redeem_s", "max_abstained")
_EARLY: Final = "early_gradients"
_SAMPLED: Final = "max_sampled_batches"


def check_limits(*, redeem_s: float, max_abstained: float, max_sampled_batches: int) -> None:
    """Raise a ValueError unless every limit is in its range.

    Args:
        redeem_s: seconds that a step waits for a reward; greater than 0.
        max_abstained: share of a step's rewards that may abstain; in (0, 1].
        max_sampled_batches: batches that may be sampled for one step; at least 1.
    """
    if not (math.isfinite(redeem_s) and redeem_s > 0):
        raise ValueError(f"redeem_s must be greater than 0, not {redeem_s}")
    if not 0 < max_abstained <= 1:
        raise ValueError(f"max_abstained must be in (0, 1], not {max_abstained}")
    if max_sampled_batches < 1:
        raise ValueError(f"max_sampled_batches must be at least 1, not {max_sampled_batches}")


class RewardSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section ``reward.zerowait`` of verl's configuration.

    Args:
        config: path of the reward configuration, or ``recipe.yaml#reward``.
        record: the folder for the record of rewards, or None.
        redeem_s: seconds that a step waits for a reward, counted from when the trainer has nothing
            else to do; after that the reward abstains with ``timeout``.
        max_abstained: the largest share of a step's rewards that may abstain, in (0, 1]. Beyond it
            training stops, because it would learn from noise; 1 never stops.
        max_sampled_batches: under ``algorithm.filter_groups``, the most batches of groups that may
            be sampled for one step before training stops.
        early_gradients: in the trainer mode ``zerowait``, whether gradients of groups whose rewards
            are known are computed while others are judged: ``auto`` where they add up to the
            gradient of one update, ``on`` to be told where they do not, ``off`` never.

    Raises:
        ValueError: a number is out of its range.
    """

    config: str
    record: str | None = None
    redeem_s: float = REDEEM_S
    max_abstained: float = MAX_ABSTAINED
    max_sampled_batches: int = MAX_SAMPLED_BATCHES
    early_gradients: EarlyGradients = "auto"

    def __post_init__(self) -> None:
        check_limits(
            redeem_s=self.redeem_s,
            max_abstained=self.max_abstained,
            max_sampled_batches=self.max_sampled_batches,
        )


def gives_tickets(config: Any) -> bool:
    """Whether verl's configuration selects a trainer mode that redeems tickets."""
    return str(config.trainer.v1.trainer_mode) in BASE_MODES


def settings_in(config: Any) -> RewardSettings:
    """The section ``reward.zerowait`` of verl's whole configuration.

    Raises:
        ConfigError: names the key that is missing, unknown or wrong, or that the trainer mode would
            ignore.
    """
    own = {str(key): value for key, value in (config.reward.get("zerowait") or {}).items()}
    for key in own:
        if key not in RewardSettings.__struct_fields__:
            hint = did_you_mean(key, RewardSettings.__struct_fields__)
            raise ConfigError(f"there is no key reward.zerowait.{key}{hint}")
        if key == _SAMPLED and str(config.trainer.v1.trainer_mode) not in STOPPABLE_MODES:
            raise ConfigError(
                f"reward.zerowait.{key} is for the trainer modes "
                f"{', '.join(STOPPABLE_MODES)}, and trainer.v1.trainer_mode is "
                f"{config.trainer.v1.trainer_mode}, which draws other prompts for ever: leave it "
                "out, or choose one of them"
            )
        if key == _EARLY and str(config.trainer.v1.trainer_mode) != MODE:
            raise ConfigError(
                f"reward.zerowait.{key} is for the trainer mode {MODE}, and "
                f"trainer.v1.trainer_mode is {config.trainer.v1.trainer_mode}: leave it out"
            )
        if key in _OF_TICKETS and not gives_tickets(config):
            raise ConfigError(
                f"reward.zerowait.{key} is for the trainer modes {', '.join(BASE_MODES)}, and "
                f"trainer.v1.trainer_mode is {config.trainer.v1.trainer_mode}, which knows no such "
                "limit: leave it out, or choose one of them"
            )
    if not own.get("config"):
        near = get_close_matches("zerowait", [str(key) for key in config.reward])
        hint = "" if own or not near else f" (reward.{near[0]} is, which is not read)"
        raise ConfigError(
            f"reward.zerowait.config is not set{hint}: give the path of a reward.yaml with "
            "+reward.zerowait.config=/path/reward.yaml"
        )
    try:
        return msgspec.convert(own, RewardSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"reward.zerowait: {error}") from None


def check_ticketed(config: Any) -> None:
    """Raise a ConfigError unless the reward manager ``zerowait`` gives every row its ticket."""
    manager = config.reward.reward_manager.name
    if manager != "zerowait":
        raise ConfigError(
            f"trainer.v1.trainer_mode={config.trainer.v1.trainer_mode} needs "
            f"reward.reward_manager.name=zerowait, not {manager}"
        )
    if config.reward.reward_model.enable and config.reward.custom_reward_function.path is None:
        raise ConfigError(
            "reward.reward_model.enable=True takes every reward from the reward model and never "
            "asks the reward manager: leave it off and put the model into reward.yaml as a judge"
        )
