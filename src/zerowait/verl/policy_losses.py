"""Settings of a policy loss on which verl would stop.

verl's losses look at them at the first update, after a whole batch was rolled out and judged. Read
in verl 0.9.1. Imports no verl.
"""

from __future__ import annotations

from typing import Any, Final

_ACTOR: Final = "actor_rollout_ref.actor"
_LOSS: Final = f"{_ACTOR}.policy_loss"
_POSITIVE: Final = {
    "dro": "dro_beta",
    "clip_cov": "clip_cov_ratio",
    "kl_cov": "kl_cov_ratio",
}
"""By loss: its setting that has to be above 0."""


def unfit_loss(config: Any) -> tuple[str, str] | None:
    """The setting on which verl's policy loss would stop: its key, and what is wrong with it.

    Args:
        config: verl's whole configuration.
    """
    actor = config.actor_rollout_ref.actor
    loss = str(actor.policy_loss.loss_mode)
    if loss == "vanilla" and actor.clip_ratio_c <= 1.0:
        problem = f"is {actor.clip_ratio_c:g}, and dual-clip PPO needs more than 1: verl's is 3.0"
        return f"{_ACTOR}.clip_ratio_c", problem
    name = _POSITIVE.get(loss)
    if name is None:
        return None
    value = actor.policy_loss[name]
    if value is None and loss == "dro":
        return f"{_LOSS}.{name}", "is not set, and the policy loss dro needs a number above 0"
    if value is not None and value <= 0:
        return f"{_LOSS}.{name}", f"is {value:g}, and the policy loss {loss} needs more than 0"
    return None
