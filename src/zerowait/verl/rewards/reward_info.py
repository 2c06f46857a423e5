"""The columns that verl logs beside a row's reward (``reward_extra_info``). Imports no verl."""

from __future__ import annotations

from typing import Any

from zerowait.types import Abstain, Reward, Score


def extra_info(reward: Reward, *, substitute_source: str = "") -> dict[str, Any]:
    """What verl logs beside the reward: finite numbers or None, the same keys for every row.

    ``judged_reward`` and each component hold judged values, None where there is none;
    ``abstained`` is 1.0 for a reward without a value, else 0.0, and ``abstained_why`` names the
    component and the failure. All of ``Reward.metrics`` is added.

    Args:
        reward: of the row.
        substitute_source: what a streaming trainer's substitute for a missing value was computed
            from (``group``, ``step``, ``run``); logged as ``stand_in``.
    """
    info: dict[str, Any] = {
        **reward.metrics,
        "judged_reward": reward.value,
        "abstained": float(reward.value is None),
        "abstained_why": reward.why,
        "stand_in": substitute_source,
    }
    for name, outcome in reward.components.items():
        info[name] = outcome.value if isinstance(outcome, Score) else None
        info[f"{name}_abstained"] = outcome.kind.value if isinstance(outcome, Abstain) else ""
    return info


class RowInfo(dict[str, Any]):
    """A row's ``reward_extra_info`` that answers None for a column it does not have.

    verl reads from every row the keys of the first row, and a user's function may have returned a
    metric (``mine/acc``) for that row only.
    """

    def __missing__(self, column: str) -> None:
        """No number for `column`."""
