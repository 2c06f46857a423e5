"""Reward function (ORM) for ms-swift's GRPO, made by `orm`.

A plugin file for ``--external_plugins`` is two lines: ``from swift.rewards import orms`` and
``orms["zerowait"] = zerowait.swift.orm("reward.yaml")``; then ``--reward_funcs zerowait``.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zerowait.config import RewardConfig
from zerowait.hub.process import OnAbstain, ProcessHub, checked_on_abstain, gold_column
from zerowait.types import Sample


def orm(
    config: str | Path | Mapping[str, Any] | RewardConfig,
    *,
    on_abstain: OnAbstain = "error",
    ground_truth: str | None = None,
    url: str | None = None,
    token: str | None = None,
) -> type:
    """A class for ms-swift's table ``orms``, whose objects compute rewards as `config` says.

    Args:
        config: a path to a ``reward.yaml``, a mapping, or a `RewardConfig`.
        on_abstain: what a row that abstained gets, since ms-swift adds up a None as 0: ``neutral``
            for the mean of its group's judged rows (advantage 0), a number of your choice, or
            ``error``, which stops the training.
        ground_truth: the column with the gold answer; None: the first that the data has of
            ``ground_truth``, ``solution`` and ``answer``.
        url: a running ``zerowait serve`` with the same configuration, which all ranks share; None:
            each rank has an engine of its own.
        token: the value of the service's ``--token-env`` variable.

    Raises:
        ConfigError: the configuration is wrong, or `on_abstain` is none of these.
    """
    hub = ProcessHub(config, url=url, token=token)
    del config, token  # a traceback may show local variables
    checked_on_abstain(on_abstain)

    class ZerowaitORM:
        """ms-swift awaits its objects, called with a batch's completions and columns."""

        def __init__(self, args: Any = None, **_: Any) -> None:
            self.args = args

        async def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float]:
            samples = _samples(completions, columns, ground_truth)
            return (await hub.numbers(samples, on_abstain))[1]

    return ZerowaitORM


def _samples(
    completions: Sequence[Any], columns: Mapping[str, Any], ground_truth: str | None
) -> list[Sample]:
    """The samples of a batch; the rows of this process with one ``prompt_id`` are a group."""
    data = {key: each for key, each in columns.items() if isinstance(each, list)}
    truth = gold_column(data, ground_truth, "the data has no column")
    batch = uuid.uuid4().hex  # ms-swift counts prompts anew in each batch
    rows = [{key: each[row] for key, each in data.items()} for row in range(len(completions))]
    sizes = Counter(row.get("prompt_id") for row in rows)
    state = columns.get("trainer_state")
    return [
        Sample(
            prompt=row["messages"][:-1],
            response=completion,
            ground_truth=None if truth is None else row[truth],
            data_source=str(row.get("data_source") or ""),
            group=f"{batch}/{row['prompt_id']}" if row.get("prompt_id") else None,
            group_size=sizes[row["prompt_id"]] if row.get("prompt_id") else None,
            response_tokens=_token_count(row.get("response_token_ids")),
            step=None if state is None else int(state.global_step),
            extra=row,
        )
        for completion, row in zip(completions, rows, strict=True)
    ]


def _token_count(token_ids: Any) -> int | None:
    """The tokens that the policy wrote; of several turns ms-swift has a list for each."""
    if not token_ids:
        return None
    return sum(len(turn) if isinstance(turn, list) else 1 for turn in token_ids)
