"""Turn rewards in verl: each turn's share of the reward stands on that turn's last token.

Only estimators that read rewards token by token can tell them apart; the others add up a response's
rewards first. Imports no verl.
"""

from __future__ import annotations

from typing import Any, Final

from zerowait.config import JudgeComponent, RewardConfig
from zerowait.types import Reward
from zerowait.verl.agent_loop_check import has_our_workers
from zerowait.verl.estimators import estimator_in, refuse_turns
from zerowait.verl.rows import TURN_REWARDS

TurnPlaces = list[tuple[int, float]]
"""Rewards on single tokens: (index in the response, reward)."""
_NOWHERE: Final[TurnPlaces] = []


def pays_by_turn(config: RewardConfig) -> bool:
    """Whether a component's verdicts on turns belong on the turns' own tokens."""
    return any(
        isinstance(component, JudgeComponent) and component.pays_by_turn
        for component in config.components.values()
    )


def turn_places(reward: Reward) -> TurnPlaces:
    """The parts of a reward that stand on turns' last tokens.

    None for a reward without a value, or where a turn was not judged and a failure policy's value
    counts in its component's place.
    """
    if reward.value is None or any(turn.value is None for turn in reward.turns):
        return _NOWHERE
    return [
        (turn.token, turn.value)
        for turn in reward.turns
        if turn.token is not None and turn.value is not None
    ]


def turn_columns(reward: Reward) -> dict[str, Any]:
    """What the agent loop's worker is told to place the reward by."""
    places = turn_places(reward)
    return {TURN_REWARDS: places} if places else {}


def check_turn_rewards(config: RewardConfig, verl_config: Any) -> None:
    """Raise a ConfigError where turns' rewards would not reach the turns' own tokens.

    Args:
        config: the reward configuration.
        verl_config: verl's whole configuration.
    """
    if not pays_by_turn(config):
        return
    refuse_turns(config, estimator_in(verl_config))
    if not has_our_workers(verl_config):
        config.fail(
            ("components",),
            "has a component that is per: turn, whose rewards verl would put on the last token of "
            "the response: write +actor_rollout_ref.rollout.agent.agent_loop_manager_class="
            "zerowait.verl.agent.manager.AgentLoopManager, or give the component an aggregate",
        )
