"""Reward function for slime's ``--custom-rm-path rewards.custom_rm``, made by `custom_rm`.

``rewards.py`` is two lines: ``import zerowait.slime`` and
``custom_rm = zerowait.slime.custom_rm("reward.yaml")``. It serves slime's single and group form
(``--group-rm``) alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from zerowait.config import RewardConfig
from zerowait.hub.process import ProcessHub
from zerowait.types import Sample


def custom_rm(
    config: str | Path | Mapping[str, Any] | RewardConfig,
    *,
    url: str | None = None,
    token: str | None = None,
) -> Callable[..., Any]:
    """A reward function of slime's, called with its arguments and a sample or a list of samples.

    Where the reward abstains, the sample's ``remove_sample`` is set, so that slime masks its
    tokens. Its number is then the mean of its group's judged rows, so that the baseline stays
    theirs.

    Args:
        config: a path to a ``reward.yaml``, a mapping, or a `RewardConfig`.
        url: a running ``zerowait serve`` with the same configuration, which all processes share;
            None: each process has an engine of its own.
        token: the value of the service's ``--token-env`` variable.

    Raises:
        ConfigError: the configuration is wrong.
    """
    hub = ProcessHub(config, url=url, token=token)
    del config, token  # a traceback may show local variables

    async def rewards(args: Any, sample: Any, **_: Any) -> float | list[float]:
        """The number of each sample; raises where nothing was judged yet that it could be."""
        rows = sample if isinstance(sample, list) else [sample]
        samples = [_sample(row, args) for row in rows]
        scored, numbers = await hub.numbers(samples, "neutral")
        for row, reward in zip(rows, scored, strict=True):
            if reward.abstained:
                row.remove_sample = True
        return numbers if isinstance(sample, list) else numbers[0]

    return rewards


def _sample(row: Any, args: Any) -> Sample:
    grouped = row.group_index is not None
    return Sample(
        prompt=row.prompt,
        response=row.response,
        ground_truth=row.label,
        data_source=str(row.metadata.get("data_source") or ""),
        group=str(row.group_index) if grouped else None,
        group_size=args.n_samples_per_prompt if grouped else None,
        response_tokens=row.response_length,
        extra=row.metadata,
    )
