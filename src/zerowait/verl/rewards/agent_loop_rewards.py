"""Rewards that an agent loop of the user's own brought along, for which there is no ticket."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import FILTER_GROUPS_REWARD_METRIC

from zerowait.errors import DataError


def own_numbers(partition_id: str, keys: Sequence[str], metric: str) -> dict[str, float | None]:
    """The number by which each of these rows is filtered; None where the loop has none for it.

    Raises:
        DataError: names the row whose loop does not know `metric`, or has no number under it.
    """
    if not keys:
        return {}
    if metric == FILTER_GROUPS_REWARD_METRIC:
        scores = _scores(partition_id, keys)
        return {key: _number(key, metric, score) for key, score in scores.items()}
    data = tq.kv_batch_get(
        keys=list(keys), partition_id=partition_id, select_fields=["extra_fields"]
    )
    rows = zip(keys, data["extra_fields"], strict=True)
    return {key: _number(key, metric, _told(key, metric, fields)) for key, fields in rows}


def check_own(partition_id: str, keys: Sequence[str]) -> None:
    """Raise a DataError when the reward that one of these rows brought along is no finite number.

    One NaN turns the advantages of its whole group, and with them the update, into NaN.
    """
    for key, score in _scores(partition_id, keys).items() if keys else ():
        if not math.isfinite(score):
            raise DataError(
                f"response {key}: its agent loop says that its reward is {score}, of which nothing "
                "can be learned: AgentLoopOutput.reward_score has to be a finite number, or None "
                "to let the reward manager judge"
            )


def _scores(partition_id: str, keys: Sequence[str]) -> dict[str, float]:
    data = tq.kv_batch_get(keys=list(keys), partition_id=partition_id, select_fields=["rm_scores"])
    rows = data["rm_scores"].unbind()
    return {key: float(row.sum()) for key, row in zip(keys, rows, strict=True)}


def _told(key: str, metric: str, extra_fields: Any) -> Any:
    fields = getattr(extra_fields, "data", extra_fields)
    info = fields.get("reward_extra_info") if isinstance(fields, Mapping) else None
    if not isinstance(info, Mapping) or metric not in info:
        raise DataError(
            f"response {key} has a reward of its agent loop's own, and no {metric!r} beside it: "
            f"put it into AgentLoopOutput.extra_fields['reward_extra_info'] (None where there is "
            "none), or write algorithm.filter_groups.metric=reward"
        )
    return info[metric]


def _number(key: str, metric: str, told: Any) -> float | None:
    """The number that was told; NaN is none, as None is."""
    if told is None:
        return None
    try:
        number = float(told)
    except (TypeError, ValueError):
        raise DataError(
            f"response {key}: its agent loop says {str(told)[:40]!r} for {metric!r}, by which "
            "groups are filtered, and that is no number"
        ) from None
    return None if math.isnan(number) else number
