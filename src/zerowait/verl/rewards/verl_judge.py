"""Judges with ``base_url: verl``: check that verl serves the model that they ask."""

from __future__ import annotations

from typing import Any, Final

from zerowait.config import RewardConfig

OVERRIDES: Final[dict[str, object]] = {
    "reward.reward_model.enable": True,
    "reward.reward_model.enable_resource_pool": True,
    # without a function verl takes every reward from the model itself, and asks no reward manager
    "reward.custom_reward_function.path": "pkg://zerowait.verl",
}
"""What verl needs to be told for such a judge, whichever the model."""

_REST: Final = (
    "reward.reward_model.model_path, .rollout.name (vllm or sglang), .n_gpus_per_node and .nnodes"
)


def asks_verls_model(config: RewardConfig) -> bool:
    """Whether a judge is the reward model that verl serves."""
    return any(each.is_verls for judge in config.judges.values() for each in judge.endpoints)


def check_verls_model(config: RewardConfig, verl_config: Any) -> None:
    """Raise a ConfigError for a judge ``base_url: verl`` that verl, as configured, does not serve.

    Args:
        config: of the rewards.
        verl_config: verl's whole configuration.
    """
    for name, judge in config.judges.items():
        for index, endpoint in enumerate(judge.endpoints):
            if not endpoint.is_verls:
                continue
            at = ("judges", name, "endpoints", index)
            served = verl_config.reward.reward_model
            function = verl_config.reward.custom_reward_function.path
            given = {
                "reward.reward_model.enable": bool(served.enable),
                "reward.reward_model.enable_resource_pool": bool(served.enable_resource_pool),
                "reward.custom_reward_function.path": function,
            }
            missing = [f"{key}={OVERRIDES[key]}" for key, value in given.items() if not value]
            if missing:
                config.fail(
                    (*at, "base_url"),
                    f"is verl, and verl serves no reward model beside the rollout: set "
                    f"{', '.join(missing)}, and {_REST}",
                )
            if not served.model_path:
                config.fail((*at, "base_url"), f"is verl, and verl is told no model: set {_REST}")
            if endpoint.model != served.model_path:
                config.fail(
                    (*at, "model"),
                    f"is {endpoint.model}, and verl serves {served.model_path} "
                    "(reward.reward_model.model_path): write that",
                )


def check_router(config: RewardConfig, router_address: str | None) -> None:
    """Raise a ConfigError where verl gives a reward manager no address for such a judge."""
    for name, judge in config.judges.items():
        for index, endpoint in enumerate(judge.endpoints):
            if endpoint.is_verls and not router_address:
                config.fail(
                    ("judges", name, "endpoints", index, "base_url"),
                    "is verl, and verl gave its reward manager no reward_router_address: its "
                    "reward model was not started (reward.reward_model.enable=True)",
                )
