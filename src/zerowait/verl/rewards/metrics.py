"""Metrics of verl's own, over the rows that have a value: ``critic/...`` and a validation's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def valued_row_metrics(values: Sequence[float], name: str) -> dict[str, float]:
    """``critic/{name}/mean``, ``/max`` and ``/min`` over these rows; NaN without any.

    They replace the values that verl computes over all rows.

    Args:
        values: of the rows that have one.
        name: ``score`` or ``rewards``, as in verl.
    """
    unknown = math.nan
    spread = {
        "mean": math.fsum(values) / len(values) if values else unknown,
        "max": max(values, default=unknown),
        "min": min(values, default=unknown),
    }
    return {f"critic/{name}/{kind}": value for kind, value in spread.items()}


def without_placeholders(
    infos: Mapping[str, Sequence[Any]], sources: Sequence[str], uids: Sequence[str]
) -> tuple[dict[str, list[Any]], dict[tuple[str, str], int]]:
    """A validation's columns with None for each abstained reward, and its missing accuracies.

    verl leaves None out of its means, but counts a missing accuracy (``acc``) as 0.

    Args:
        infos: by column, each row's ``reward_extra_info``.
        sources: each row's data source.
        uids: each row's prompt.

    Returns:
        columns: as `infos`, without ``judged_reward``.
        missing: by source and prompt, how many accuracies are missing because they abstained.
    """
    columns = {name: list(column) for name, column in infos.items() if name != "judged_reward"}
    abstained = [flag == 1.0 for flag in infos["abstained"]]
    columns["reward"] = [
        None if lost else value for lost, value in zip(abstained, infos["reward"], strict=True)
    ]
    missing: dict[tuple[str, str], int] = {}
    for source, uid, accuracy in zip(sources, uids, infos.get("acc", ()), strict=False):
        if accuracy is None:
            key = (str(source), str(uid))
            missing[key] = missing.get(key, 0) + 1
    return columns, missing
