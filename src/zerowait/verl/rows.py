"""What verl's rows hold, and what it logs of them; needs no verl."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zerowait.errors import ConfigError, DataError
from zerowait.types import Abstain, Outcome, Reward, Score

MODEL_TOKENS: Final = "model_tokens"
"""Where an agent loop says, in ``extra_fields``, how many tokens of a response the model wrote."""
EPISODE: Final = "episode"
"""Where an agent loop may say, in ``extra_fields``, how its episode went: scorers and rubrics find
it under the same name in the sample's ``extra``."""


def truth_in(columns: Mapping[str, Any], where: str) -> Any:
    """The row's gold answer in ``reward_model``; None in a batch that has no such column.

    Raises:
        DataError: names `where` and the column, which holds something else than a mapping.
    """
    if "reward_model" not in columns:
        return None
    told = plain(columns["reward_model"])
    if not isinstance(told, Mapping):
        raise DataError(_no_mapping(where, "reward_model", told, '{"ground_truth": ...}'))
    return told.get("ground_truth")


def extra_in(columns: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The row's ``extra_info``; empty where there is none.

    Raises:
        DataError: names `where` and the column, which holds something else than a mapping.
    """
    told = plain(columns.get("extra_info"))
    if told is None or told != told:  # noqa: PLR0124 - NaN, which data frames put for nothing
        return {}
    if not isinstance(told, dict):
        raise DataError(_no_mapping(where, "extra_info", told, '{"index": 7}'))
    return told


def _no_mapping(where: str, column: str, found: Any, example: str) -> str:
    shown = "None" if found is None else f"{type(found).__name__} {str(found)[:40]!r}"
    return f"{where}: column {column!r} has to be a mapping such as {example}, not {shown}"


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
