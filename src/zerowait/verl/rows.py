"""What verl's rows hold, and what it logs of them; needs no verl."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zerowait.errors import ConfigError
from zerowait.types import Abstain, Outcome, Reward, Score

MODEL_TOKENS: Final = "model_tokens"
"""Where an agent loop says, in ``extra_fields``, how many tokens of a response the model wrote."""
EPISODE: Final = "episode"
"""Where an agent loop may say, in ``extra_fields``, how its episode went: scorers and rubrics find
it under the same name in the sample's ``extra``."""


def model_tokens(columns: Mapping[str, Any], written: int, *, shaped: bool) -> int:
    """Tokens that the model wrote: the agent loop's count, or all where it wrote every one.

    Raises:
        ConfigError: a shape needs the count, other tokens are among the `written`, and nobody says
            how many.
    """
    told = plain(columns.get("tool_extra_fields") or {}).get(MODEL_TOKENS)
    if told is not None:
        return int(told)
    turns = columns.get("__num_turns__")
    if shaped and turns is not None and int(turns) > 2:
        raise ConfigError(
            "a shape counts the tokens that the model wrote, and this agent loop does not say "
            f"how many those are: put {MODEL_TOKENS!r} into AgentLoopOutput.extra_fields"
        )
    return written


def episode_in(columns: Mapping[str, Any]) -> dict[str, Any]:
    """What the agent loop says of its episode, as a part of a sample's ``extra``; or nothing."""
    told = plain(columns.get("tool_extra_fields") or {}).get(EPISODE)
    return {} if told is None else {EPISODE: told}


def extra_info(reward: Reward, *, stand_in: str = "") -> dict[str, Any]:
    """What verl logs beside the reward: finite numbers or None, the same keys for every row.

    ``judged_reward`` and each component hold values that were judged, None where they were not;
    ``abstained`` is 1 where there is none, and ``abstained_why`` says which and how. Beside them is
    what is in ``Reward.metrics``.
    """
    info: dict[str, Any] = {
        **reward.metrics,
        "judged_reward": reward.value,
        "abstained": float(reward.value is None),
        "abstained_why": reward.why,
        "stand_in": stand_in,
    }
    for name, outcome in reward.components.items():
        info[name] = outcome.value if isinstance(outcome, Score) else None
        info[f"{name}_abstained"] = _kind(outcome)
    return info


def _kind(outcome: Outcome) -> str:
    return outcome.kind.value if isinstance(outcome, Abstain) else ""


def plain(value: Any) -> Any:
    """Python values from what data frames bring: numpy scalars, arrays and nested mappings."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
