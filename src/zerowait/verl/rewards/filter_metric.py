"""Check before training that ``algorithm.filter_groups.metric`` is a number that rows will have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zerowait.config import RewardConfig
from zerowait.engine import metrics_of, policy_for
from zerowait.engine.plan import compile_plan
from zerowait.errors import ConfigError
from zerowait.types import Abstain, FailureKind, Outcome, Reward, Skipped
from zerowait.verl.rewards.reward_info import extra_info

_REWARD: Final = "reward"
_TEXTS: Final = ("abstained_why", "stand_in")
_ALWAYS: Final = ("abstained",)
_ALWAYS_OF_EACH: Final = ("/scored", "/abstained")


def check_filter_metric(
    config: RewardConfig, given: Mapping[str, Any] | None, *, streaming: bool
) -> None:
    """Raise a ConfigError when groups are filtered by a number that rows will not have.

    Args:
        config: the reward configuration.
        given: ``algorithm.filter_groups`` of verl's configuration, or None.
        streaming: whether one of verl's own trainers filters: it needs the number in every row. The
            trainer modes ``zerowait...`` leave out rows without one.
    """
    if not given or str(given.get("enable", False)).lower() != "true":
        return
    metric = given.get("metric", _REWARD)
    if metric == _REWARD:
        return
    if metric not in _numbers(config):
        raise ConfigError(
            f"algorithm.filter_groups.metric={metric} is no number that this reward has: write "
            f"{_REWARD}, or one of its components: {', '.join(config.components)}"
        )
    why = _may_lack(config, metric) if streaming else ""
    if why:
        raise ConfigError(
            f"algorithm.filter_groups.metric={metric} {why}, and verl's own trainers end at a row "
            f"without it: write {_REWARD}, or trainer: {{mode: zerowait}} "
            "(trainer.v1.trainer_mode=zerowait), which leaves such rows out"
        )


def _numbers(config: RewardConfig) -> set[str]:
    """The names of the numbers in `extra_info`, which every row has."""
    skipped: dict[str, Outcome] = dict.fromkeys(config.components, Skipped(""))
    metrics = metrics_of(skipped, compile_plan(config).terms)
    row = extra_info(Reward(None, skipped, metrics))
    texts = {*_TEXTS, *(f"{name}_abstained" for name in config.components)}
    return row.keys() - texts


def _may_lack(config: RewardConfig, metric: str) -> str:
    """Why a row may lack this number; empty when every row has it."""
    if metric in _ALWAYS or metric.endswith(_ALWAYS_OF_EACH):
        return ""
    component = config.components.get(metric)
    if component is None:
        return "is not measured where something abstains or is skipped"
    if component.sources or getattr(component, "gate", None):
        return "is skipped in some rows (by its gate or sources)"
    if all(policy_for(config.on_failure, metric, Abstain(kind)) == "raise" for kind in FailureKind):
        return "" if _factor(config, metric) else "may abstain, since its weight is 0"
    return "may abstain, since its failure policy is not raise"


def _factor(config: RewardConfig, component: str) -> float:
    return next(term.factor for term in compile_plan(config).terms if term.name == component)
