"""What groups may be filtered by, known before the first one is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zerowait.config import RewardConfig
from zerowait.engine import metrics_of
from zerowait.engine.plan import compile_plan
from zerowait.errors import ConfigError
from zerowait.types import Outcome, Reward, Skipped
from zerowait.verl.rows import extra_info

_REWARD: Final = "reward"
_TEXTS: Final = ("abstained_why", "stand_in")


def check_filter_metric(config: RewardConfig, given: Mapping[str, Any] | None) -> None:
    """Raise a ConfigError when groups are filtered by a number that no row will have.

    Args:
        config: of the rewards.
        given: ``algorithm.filter_groups`` of verl's configuration, where there is one.
    """
    if not given or str(given.get("enable", False)).lower() != "true":
        return
    metric = given.get("metric", _REWARD)
    if metric == _REWARD or metric in _numbers(config):
        return
    raise ConfigError(
        f"algorithm.filter_groups.metric={metric} is no number that this reward has: write "
        f"{_REWARD}, or one of its components: {', '.join(config.components)}"
    )


def _numbers(config: RewardConfig) -> set[str]:
    """The numbers beside a reward: what every row has, as `extra_info` gives it."""
    skipped: dict[str, Outcome] = dict.fromkeys(config.components, Skipped(""))
    metrics = metrics_of(skipped, compile_plan(config).terms)
    row = extra_info(Reward(None, skipped, metrics))
    texts = {*_TEXTS, *(f"{name}_abstained" for name in config.components)}
    return row.keys() - texts
