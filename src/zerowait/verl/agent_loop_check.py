"""Check that rewards will be given for, and placed on, the tokens that the model wrote."""

from __future__ import annotations

from typing import Any, Final

from zerowait.errors import ConfigError
from zerowait.verl.rows import MANAGER

_KEY: Final = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
_SINGLE_TURN: Final = "single_turn_agent"
_OURS: Final = "search"


def check_agent_loop(config: Any) -> None:
    """Raise a ConfigError for an agent loop that calls tools, unless our manager handles its masks.

    verl's own worker puts the reward on the last token even if a tool wrote it, where estimators
    such as ``gae`` and ``reinforce_plus_plus`` multiply it by 0, and passes the text of tools to
    the reward manager as if the model had written it.

    Args:
        config: verl's whole configuration.
    """
    agent = config.actor_rollout_ref.rollout.get("agent") or {}
    loop = str(agent.get("default_agent_loop") or _SINGLE_TURN)
    if loop in (_SINGLE_TURN, _OURS):
        return
    if has_our_workers(config):
        return
    manager = agent.get("agent_loop_manager_class")
    found = f"{manager} is not derived from it" if manager else "it is not set"
    raise ConfigError(
        f"the agent loop {loop!r} may end a response with tokens of a tool, or have them in it: "
        "verl would put the reward on a token that is not trained on, and what the tool wrote "
        f"would be judged. Write +{_KEY}={MANAGER}, which knows what the model wrote; {found}"
    )


def has_our_workers(config: Any) -> bool:
    """Whether the agent loops of verl's configuration run in our workers."""
    agent = config.actor_rollout_ref.rollout.get("agent") or {}
    manager = agent.get("agent_loop_manager_class")
    return bool(manager) and (str(manager) == MANAGER or _is_our_manager(str(manager)))


def _is_our_manager(name: str) -> bool:
    from verl.utils.import_utils import load_class_from_fqn

    from zerowait.verl.agent.manager import AgentLoopManager

    try:
        found = load_class_from_fqn(name, "AgentLoopManager")
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{_KEY}={name} cannot be loaded: {error}") from None
    return isinstance(found, type) and issubclass(found, AgentLoopManager)
