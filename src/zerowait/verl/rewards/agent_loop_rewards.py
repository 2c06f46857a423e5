"""Rewards that the user's own agent loop has set, in rows that therefore hold no ticket."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import transfer_queue as tq

from zerowait.errors import DataError


def filter_values(partition_id: str, keys: Sequence[str], metric: str) -> dict[str, float | None]:
    """By row, the number that its group is filtered by; None for a row without one.

    Args:
        partition_id: verl's partition of the rows.
        keys: of the rows in verl's queue.
        metric: ``algorithm.filter_groups.metric``.

    Raises:
        DataError: an agent loop gave no `metric`, or something else than a number; names the row.
    """
    # not above: this import registers the trainer mode, which imports this module
    from verl.trainer.ppo.v1.replay_buffer import FILTER_GROUPS_REWARD_METRIC

    if not keys:
        return {}
    if metric == FILTER_GROUPS_REWARD_METRIC:
        scores = _scores(partition_id, keys)
        return {key: _number(key, metric, score) for key, score in scores.items()}
    data = tq.kv_batch_get(
        keys=list(keys), partition_id=partition_id, select_fields=["extra_fields"]
    )
    rows = zip(keys, data["extra_fields"], strict=True)
    return {key: _number(key, metric, _metric_in(key, metric, fields)) for key, fields in rows}


def check_finite_rewards(partition_id: str, keys: Sequence[str]) -> None:
    """Raise a DataError when the agent loop's reward of one of these rows is not finite.

    One NaN makes the advantages of its whole group NaN, and with them the update.
    """
    for key, score in _scores(partition_id, keys).items() if keys else ():
        if not math.isfinite(score):
            raise DataError(
                f"response {key}: its agent loop says that its reward is {score}, of which nothing "
                "can be learned: AgentLoopOutput.reward_score has to be a finite number, or None "
                "to let the reward manager judge"
            )


def _scores(partition_id: str, keys: Sequence[str]) -> dict[str, float]:
    """By row, its reward: the sum of ``rm_scores``, of shape (response_length,) in each row."""
    data = tq.kv_batch_get(keys=list(keys), partition_id=partition_id, select_fields=["rm_scores"])
    rows = data["rm_scores"].unbind()
    return {key: float(row.sum()) for key, row in zip(keys, rows, strict=True)}


def _metric_in(key: str, metric: str, extra_fields: Any) -> Any:
    """The value under `metric` in the row's ``reward_extra_info``."""
    fields = getattr(extra_fields, "data", extra_fields)
    info = fields.get("reward_extra_info") if isinstance(fields, Mapping) else None
    if not isinstance(info, Mapping) or metric not in info:
        raise DataError(
            f"response {key} has a reward of its agent loop's own, and no {metric!r} beside it: "
            f"put it into AgentLoopOutput.extra_fields['reward_extra_info'] (None where there is "
            "none), or write algorithm.filter_groups.metric=reward"
        )
    return info[metric]


def _number(key: str, metric: str, value: Any) -> float | None:
    """`value` as a float; None for None and NaN."""
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise DataError(
            f"response {key}: its agent loop says {str(value)[:40]!r} for {metric!r}, by which "
            "groups are filtered, and that is no number"
        ) from None
    return None if math.isnan(number) else number
