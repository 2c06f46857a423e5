"""verl 0.9.1's advantage estimators and what each needs. Imports no verl."""

from __future__ import annotations

from typing import Any, Final

from zerowait.config import JudgeComponent, RewardConfig
from zerowait.errors import ConfigError

ESTIMATORS: Final = (
    "gae",
    "gdpo",
    "gpg",
    "grpo",
    "grpo_passk",
    "grpo_vectorized",
    "opo",
    "optimal_token_baseline",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "remax",
    "rloo",
    "rloo_vectorized",
    "tir_optimal_token_baseline",
)
"""The names in ``verl.trainer.ppo.core_algos.AdvantageEstimator``."""
_NO_GROUP_BASELINE: Final = frozenset({"gae", "reinforce_plus_plus", "remax"})
_WHITENED: Final = frozenset({"gae", "reinforce_plus_plus", "reinforce_plus_plus_baseline"})
_BY_TOKEN: Final = frozenset({"gae", "reinforce_plus_plus"})
"""Those that discount and add up rewards from each token on; the others take a response's sum."""
_NO_SQUARES: Final = "the sums of squared probabilities, which never reach it there", "opo"
_UNRUNNABLE: Final = {
    "gdpo": ("each component's own rewards, which it is not given there", "grpo"),
    "optimal_token_baseline": _NO_SQUARES,
    "remax": ("the rewards of greedy responses, which are not sampled there", "rloo"),
    "tir_optimal_token_baseline": _NO_SQUARES,
}
"""Estimators that verl's trainer (``trainer.use_v1``) cannot run: what they lack, what to take."""


def estimator_in(config: Any) -> str:
    """The name of the estimator in verl's whole configuration."""
    chosen = config.algorithm.adv_estimator
    return str(getattr(chosen, "value", chosen))  # verl's own type, or its name


def not_run(estimator: str) -> tuple[str, str] | None:
    """Why verl 0.9.1's trainer cannot run this estimator, and what to use; None if it can.

    >>> not_run("remax")[1]
    'take rloo, the nearest that it runs'
    """
    if estimator not in _UNRUNNABLE:
        return None
    needed, instead = _UNRUNNABLE[estimator]
    why = f"cannot be run by verl 0.9.1's trainer, because it needs {needed}"
    return why, f"take {instead}, the nearest that it runs"


def check_estimator(config: Any) -> None:
    """Raise a ConfigError for an estimator with which verl's trainer fails at its first step."""
    if not config.trainer.get("use_v1", True):
        return
    estimator = estimator_in(config)
    wrong = not_run(estimator)
    if wrong is not None:
        raise ConfigError(f"algorithm.adv_estimator={estimator} {'; '.join(wrong)}")


def has_group_baseline(estimator: str) -> bool:
    """Whether the estimator compares the responses of a group; True for an unknown estimator.

    >>> has_group_baseline("grpo"), has_group_baseline("gae")
    (True, False)
    """
    return estimator not in _NO_GROUP_BASELINE


def needs_two_responses(estimator: str) -> bool:
    """Whether the estimator raises for a group of one response.

    >>> needs_two_responses("grpo_passk"), needs_two_responses("grpo")
    (True, False)
    """
    return estimator == "grpo_passk"


def refuse_turns(config: RewardConfig, estimator: str) -> None:
    """Raise a ConfigError for turn rewards with an estimator that adds up a response's rewards.

    An estimator that is not verl's own may read them token by token.

    Args:
        config: the reward configuration.
        estimator: ``algorithm.adv_estimator``.
    """
    if estimator not in ESTIMATORS or estimator in _BY_TOKEN:
        return
    for name, component in config.components.items():
        if isinstance(component, JudgeComponent) and component.pays_by_turn:
            config.fail(
                ("components", name, "per"),
                f"is turn, and the estimator {estimator} adds up the rewards of a response: give "
                "the component an aggregate (mean, sum, last or min), or take an estimator that "
                f"reads rewards token by token: {', '.join(sorted(_BY_TOKEN))}",
            )


def whitens(estimator: str) -> bool:
    """Whether the estimator divides by a deviation over all tokens, which needs two of them.

    >>> whitens("gae"), whitens("grpo")
    (True, False)
    """
    return estimator in _WHITENED
