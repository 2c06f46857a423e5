"""Find overrides that verl 0.9.1 accepts and ignores, or that bypass zerowait's rewards.

verl's default trainer reads rewards from ``reward.*`` only. The keys of earlier releases are still
in its schema, so that Hydra accepts them, but nothing reads them (``verl/trainer/main_ppo.py``
never calls ``migrate_legacy_reward_impl``). Other keys select what verl calls for a reward, or the
data set that adds split and group size to its rows; all spellings of a key are found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from zerowait.verl.estimators import not_run
from zerowait.verl.launch.hydra_syntax import flattened, plain_key, read
from zerowait.verl.trainer_modes import BASE_MODES


class ConfigFinding(msgspec.Struct, frozen=True):
    """A key without the expected effect, and what to write instead."""

    key: str
    problem: str
    instead: str

    def __str__(self) -> str:
        return f"{self.key} {self.problem}; {self.instead}"


_OWN_FUNCTION: Final = "use a scorer `module:function` in reward.yaml"
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
    "custom_reward_function.path": _OWN_FUNCTION,
    "custom_reward_function.name": _OWN_FUNCTION,
    "sandbox_fusion.url": "write reward.sandbox_fusion.url",
    "sandbox_fusion.max_concurrent": "write reward.sandbox_fusion.max_concurrent",
    "sandbox_fusion.memory_limit_mb": "write reward.sandbox_fusion.memory_limit_mb",
    "data.sampler": "order the rows in the dataset, or use trainer.v1.sampler.custom_sampler",
    "actor_rollout_ref.rollout.agent.custom_async_server": "use "
    "actor_rollout_ref.rollout.agent.agent_loop_manager_class",
}
_UNREAD: Final[dict[str, tuple[str, str]]] = {
    "reward.reward_kwargs": (
        "is never read by the reward manager zerowait",
        "put it into reward.yaml",
    ),
    "reward.sandbox_fusion": (
        "is for verl's own scoring functions, which the reward manager zerowait never calls",
        _OWN_FUNCTION,
    ),
    "reward.reward_manager.module": (
        "is read with reward.reward_manager.source=importlib only",
        "leave it out",
    ),
    **{
        f"reward.{limit}": (
            "is a limit of verl's manager rate_limited, for each of its processes",
            f"write traffic: {{{ours}}} in reward.yaml, which holds for the whole job",
        )
        for limit, ours in (
            ("max_concurrent", "concurrency: n"),
            ("max_rpm", "rpm: n"),
            ("max_tpm", "tpm: n"),
            ("estimated_tokens_per_request", "tpm: n"),
            ("timeout", "timeout_s: n"),
        )
    },
    "algorithm.filter_groups.max_num_gen_batches": (
        "is ignored by verl 0.9.1's trainer",
        "write algorithm.filter_groups.max_inflight_gen_batches",
    ),
}
_LEGACY_FAMILIES: Final = ("reward_model.", "custom_reward_function.", "sandbox_fusion.")
_GONE_MANAGERS: Final = ("batch", "prime")
_DATASET: Final = "pkg://zerowait.verl.dataset"
_NONE: Final = ("", "none", "null")
_SAMPLER: Final = "trainer.v1.sampler.custom_sampler"
_OURS: Final = ("reward.reward_manager", "reward.zerowait", "data.custom_cls")


def examine(overrides: Mapping[str, Any]) -> list[ConfigFinding]:
    """The ineffective overrides among these, in their order.

    Args:
        overrides: values by Hydra key.

    >>> print(examine({"reward_model.reward_manager": "batch"})[0])
    reward_model.reward_manager is accepted and ignored by verl 0.9.1; write \
reward.reward_manager.name=zerowait
    """
    plain = flattened(overrides)
    found = [_deleted(key) for key in overrides if key.startswith("~")]
    found += [_examine(key, value) for key, value in plain.items()]
    findings = [finding for finding in found if finding is not None]
    if bypasses(plain):
        findings.append(
            ConfigFinding(
                "reward.reward_model.enable=True",
                "without reward.custom_reward_function.path takes every reward from the reward "
                "model and never asks the reward manager",
                "leave it off and put the reward model into reward.yaml as a judge",
            )
        )
    if plain.get("algorithm.adv_estimator") == "grpo_vectorized":
        norm = "algorithm.norm_adv_by_std_in_grpo"
        if str(plain.get(norm, True)).lower() == "false":
            problem = "does not reach grpo_vectorized in verl 0.9.1, which divides all the same"
            findings.append(ConfigFinding(f"{norm}=False", problem, "take grpo"))
    sampler = plain.get(f"{_SAMPLER}.path")
    if plain.get("trainer.v1.trainer_mode") in BASE_MODES and str(sampler).lower() not in _NONE:
        problem = "takes the place of the replay buffer that redeems tickets"
        findings.append(ConfigFinding(f"{_SAMPLER}.path={sampler}", problem, "leave it out"))
    return findings


def bypasses(overrides: Mapping[str, Any]) -> bool:
    """Whether verl takes all rewards from a reward model and never calls the reward manager."""
    plain = flattened(overrides)
    enabled = str(plain.get("reward.reward_model.enable", False)).lower() == "true"
    function = plain.get("reward.custom_reward_function.path")
    return enabled and str(function).lower() in _NONE


def _examine(key: str, value: Any) -> ConfigFinding | None:
    bypass = _bypass(key, read(value) if isinstance(value, str) else value)
    if bypass is not None:
        return bypass
    wrong = not_run(str(value)) if key == "algorithm.adv_estimator" else None
    if wrong is not None:
        return ConfigFinding(f"{key}={value}", *wrong)
    for legacy, instead in _LEGACY.items():
        if key == legacy or key.startswith(legacy + "."):
            return ConfigFinding(key, _IGNORED, instead)
    if key.startswith(_LEGACY_FAMILIES):
        return ConfigFinding(key, _IGNORED, f"write reward.{key}")
    for unread, (problem, instead) in _UNREAD.items():
        if key == unread or key.startswith(unread + "."):
            return ConfigFinding(key, problem, instead)
    return None


def _bypass(key: str, value: Any) -> ConfigFinding | None:
    """A finding for a key that selects another manager, function or data set than zerowait's."""
    text = "null" if value is None else str(value)
    problem, instead = "", "leave it out"
    match key:
        case "reward.reward_manager.name" if text != "zerowait":
            gone = text in _GONE_MANAGERS
            problem = (
                "no longer exists in verl 0.9" if gone else "keeps reward.yaml from being read"
            )
            instead = "write reward.reward_manager.name=zerowait"
        case "reward.reward_manager.source" if text != "register":
            problem = "loads a manager that does not read reward.yaml"
        case "reward.custom_reward_function.path" if text.lower() not in _NONE:
            problem = "is loaded by verl and never called by the reward manager zerowait"
            instead = _OWN_FUNCTION
        case "data.custom_cls.path" if text != _DATASET:
            problem = "leaves out the data set that tells rewards the split and group of a row"
            instead = f"write data.custom_cls.path={_DATASET}"
        case "trainer.use_v1" if text.lower() == "false":
            problem = "chooses a trainer of verl's that knows no trainer mode"
        case "actor_rollout_ref.model.external_lib" if isinstance(value, list | tuple):
            problem = "is a list, of which verl 0.9.1 imports nothing"
            instead = "name one module that imports the others"
        case "reward" | "reward.reward_manager" | "reward.zerowait" | "data" | "data.custom_cls":
            problem = "takes the place of what rewards need"
    return ConfigFinding(f"{key}={text}", problem, instead) if problem else None


def _deleted(given: str) -> ConfigFinding | None:
    key = plain_key(given.partition("=")[0])
    if any(own == key or own.startswith(f"{key}.") or key.startswith(f"{own}.") for own in _OURS):
        return ConfigFinding(given, "takes the rewards out of verl's configuration", "leave it out")
    return None
