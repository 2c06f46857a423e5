"""Tickets as they travel through verl's rows, and what the trainer mode may be told."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from zerowait.errors import ConfigError, DataError, did_you_mean
from zerowait.hub.ray import RayTickets
from zerowait.types import Sample
from zerowait.verl.modes import BUILT_ON, STOPPED_WHEN_SAMPLING
from zerowait.verl.rewards.limits import MAX_ABSTAINED, MAX_SAMPLED_BATCHES, REDEEM_S, check_limits

PLACEHOLDER: Final = 0.0
"""The number in verl's row until its ticket is redeemed; it is never trained on or reported."""
_FIELD: Final = "ticket"
_OF_TICKETS: Final = ("redeem_s", "max_abstained")
_SAMPLED: Final = "max_sampled_batches"

_encode = msgspec.msgpack.Encoder(enc_hook=str).encode
_decode = msgspec.msgpack.Decoder(Sample).decode


class TicketSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``reward.zerowait`` in verl's configuration says.

    Args:
        config: path of the reward configuration, or ``recipe.yaml#reward``.
        record: the folder for the record, or None.
        redeem_s: how long a step waits for a reward before it abstains with ``timeout``, counted
            from the moment at which the trainer has nothing else to do.
        max_abstained: the largest share of a step's rewards that may abstain, in (0, 1]; with more
            of them training stops, because it would learn from noise. 1 never stops.
        max_sampled_batches: under ``algorithm.filter_groups``, so many batches of groups may be
            sampled for one step; when none of them made it full, training stops.

    Raises:
        ValueError: a number is out of its range.
    """

    config: str
    record: str | None = None
    redeem_s: float = REDEEM_S
    max_abstained: float = MAX_ABSTAINED
    max_sampled_batches: int = MAX_SAMPLED_BATCHES

    def __post_init__(self) -> None:
        check_limits(
            redeem_s=self.redeem_s,
            max_abstained=self.max_abstained,
            max_sampled_batches=self.max_sampled_batches,
        )


def gives_tickets(config: Any) -> bool:
    """Whether verl's configuration selects a trainer mode that redeems tickets."""
    return str(config.trainer.v1.trainer_mode) in BUILT_ON


def settings_in(config: Any) -> TicketSettings:
    """What verl's configuration says about our rewards.

    Raises:
        ConfigError: names the key under ``reward.zerowait`` that is missing, unknown or wrong, or
            that verl's own trainers would ignore.
    """
    own = {str(key): value for key, value in (config.reward.get("zerowait") or {}).items()}
    for key in own:
        if key not in TicketSettings.__struct_fields__:
            hint = did_you_mean(key, TicketSettings.__struct_fields__)
            raise ConfigError(f"there is no key reward.zerowait.{key}{hint}")
        if key == _SAMPLED and str(config.trainer.v1.trainer_mode) not in STOPPED_WHEN_SAMPLING:
            raise ConfigError(
                f"reward.zerowait.{key} is for the trainer modes "
                f"{', '.join(STOPPED_WHEN_SAMPLING)}, and trainer.v1.trainer_mode is "
                f"{config.trainer.v1.trainer_mode}, which draws other prompts for ever: leave it "
                "out, or choose one of them"
            )
        if key in _OF_TICKETS and not gives_tickets(config):
            raise ConfigError(
                f"reward.zerowait.{key} is for the trainer modes {', '.join(BUILT_ON)}, and "
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
        return msgspec.convert(own, TicketSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"reward.zerowait: {error}") from None


def check_ticketed(config: Any) -> None:
    """Raise a ConfigError unless every row of verl's gets its ticket from our reward manager."""
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


async def open_tickets(settings: TicketSettings) -> RayTickets:
    """A handle on the job's open hub.

    Raises:
        ConfigError: the reward configuration is wrong.
    """
    hub = RayTickets(settings.config, record=settings.record)
    await hub.ready()
    return hub


def ticket(sample: Sample) -> dict[str, Any]:
    """The ``reward_extra_info`` that stands for a sample until its reward is fetched."""
    return {_FIELD: _encode(sample)}


def ticket_in(extra_fields: Any) -> Sample | None:
    """The sample whose ticket a row of verl holds; None for a row that has none.

    Raises:
        DataError: the ticket is damaged.
    """
    fields = getattr(extra_fields, "data", extra_fields)
    info = fields.get("reward_extra_info") if isinstance(fields, Mapping) else None
    written = info.get(_FIELD) if isinstance(info, Mapping) else None
    if written is None:
        return None
    try:
        return _decode(written)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"a ticket in verl's rows is damaged: {error}") from None
