"""Keys that verl 0.9.1 accepts and then ignores, or that take rewards past our manager.

verl's default trainer reads rewards from ``reward.*`` only. The keys of earlier releases are still
in its schema, so that Hydra accepts them, and nothing reads them
(``verl/trainer/main_ppo.py`` never calls ``migrate_legacy_reward_impl``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """A key that does not do what it says, and what to write instead."""

    key: str
    problem: str
    instead: str

    def __str__(self) -> str:
        return f"{self.key} {self.problem}; {self.instead}"


_IGNORED: Final = "is accepted and ignored by verl 0.9.1"

_LEGACY: Final[dict[str, str]] = {
    "reward_model.reward_manager": "write reward.reward_manager.name=zerowait",
    "reward_model.num_workers": "write reward.num_workers",
    "reward_model.reward_loop_source": "write reward.reward_manager.source",
    "reward_model.reward_loop_module_path": "write reward.reward_manager.module.path",
    "reward_model.reward_loop_class_name": "write reward.reward_manager.name",
    "reward_model.enable": "write reward.reward_model.enable",
    "reward_model.enable_resource_pool": "write reward.reward_model.enable_resource_pool",
    "reward_model.model.path": "write reward.reward_model.model_path",
    "custom_reward_function.path": "use a scorer `module:function` in reward.yaml, "
    "or write reward.custom_reward_function.path",
    "custom_reward_function.name": "use a scorer `module:function` in reward.yaml, "
    "or write reward.custom_reward_function.name",
    "sandbox_fusion.url": "write reward.sandbox_fusion.url",
    "sandbox_fusion.max_concurrent": "write reward.sandbox_fusion.max_concurrent",
    "sandbox_fusion.memory_limit_mb": "write reward.sandbox_fusion.memory_limit_mb",
    "data.sampler": "order the rows in the dataset, or use trainer.v1.sampler.custom_sampler",
    "actor_rollout_ref.rollout.agent.custom_async_server": "use "
    "actor_rollout_ref.rollout.agent.agent_loop_manager_class",
}
_LEGACY_FAMILIES: Final = ("reward_model.", "custom_reward_function.", "sandbox_fusion.")
_GONE_MANAGERS: Final = ("batch", "prime")


def examine(overrides: Mapping[str, Any]) -> list[Finding]:
    """What is wrong with these overrides of verl's configuration, in their order.

    >>> print(examine({"reward_model.reward_manager": "batch"})[0])
    reward_model.reward_manager is accepted and ignored by verl 0.9.1; write \
reward.reward_manager.name=zerowait
    """
    found = []
    for given, value in overrides.items():
        key = given.lstrip("+~")
        finding = _examine(key, value)
        if finding is not None:
            found.append(finding)
    if bypasses(overrides):
        found.append(
            Finding(
                "reward.reward_model.enable=True",
                "without reward.custom_reward_function.path takes every reward from the reward "
                "model and never asks the reward manager",
                "leave it off and put the reward model into reward.yaml as a judge",
            )
        )
    return found


def bypasses(overrides: Mapping[str, Any]) -> bool:
    """Whether verl would never call the reward manager."""
    plain = {key.lstrip("+~"): value for key, value in overrides.items()}
    enabled = str(plain.get("reward.reward_model.enable", False)).lower() == "true"
    function = plain.get("reward.custom_reward_function.path")
    return enabled and str(function).lower() in ("none", "null", "")


def _examine(key: str, value: Any) -> Finding | None:
    if key == "reward.reward_manager.name" and value in _GONE_MANAGERS:
        return Finding(
            f"{key}={value}",
            "no longer exists in verl 0.9",
            "write reward.reward_manager.name=zerowait",
        )
    for legacy, instead in _LEGACY.items():
        if key == legacy or key.startswith(legacy + "."):
            return Finding(key, _IGNORED, instead)
    if key.startswith(_LEGACY_FAMILIES):
        return Finding(key, _IGNORED, f"write reward.{key}")
    return None
