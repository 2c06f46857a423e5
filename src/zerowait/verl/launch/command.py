"""The command line of verl's trainer for a recipe: device, settings and overrides."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from zerowait.errors import ConfigError
from zerowait.verl.early_gradients import MODE
from zerowait.verl.launch.fused_kernels import fused_kernels
from zerowait.verl.launch.hydra_syntax import flattened, given_twice, read
from zerowait.verl.launch.ignored_keys import examine
from zerowait.verl.launch.overrides import arguments, base_overrides, merged_overrides
from zerowait.verl.launch.recipe import Recipe
from zerowait.verl.launch.steps import steps_of
from zerowait.verl.launch.trainer_process import ROLLOUTS, VALIDATION
from zerowait.verl.launch.training_setup import TrainingSetup
from zerowait.verl.rewards.verl_judge import OVERRIDES, asks_verls_model
from zerowait.verl.rows import MANAGER


def device_of(recipe: Recipe, *, runs_here: bool = True) -> Literal["cpu", "cuda"]:
    """``cuda`` or ``cpu``, as the recipe says or as this machine has.

    Args:
        recipe: the recipe.
        runs_here: False for a dry run, in which a recipe for GPUs needs none.

    Raises:
        ConfigError: the recipe says ``cuda``, and this machine has no GPU.
    """
    resources = recipe.resources
    runs_here = runs_here and resources.ray_address is None
    if resources.device == "cuda" and runs_here and not _has_gpu():
        recipe.source.fail(("resources", "device"), "is cuda, and this machine has no GPU")
    if resources.device != "auto":
        return resources.device
    return "cuda" if _has_gpu() else "cpu"


def has_driver() -> bool:
    """Whether a GPU driver is installed; without one, torch (slow to import) need not be asked."""
    if Path("/dev/kfd").exists():  # AMD's
        return True
    try:
        ctypes.CDLL("libcuda.so.1" if os.name == "posix" else "nvcuda.dll")
    except OSError:
        return False
    return True


def _has_gpu() -> bool:
    if not has_driver():
        return False
    import torch

    return torch.cuda.is_available()


_MIN_SEQS: Final = 256
"""verl's own number."""
_MAX_SEQS: Final = 1024
"""vLLM reserves memory for the logits of so many responses."""


def setup_of(
    recipe: Recipe,
    device: Literal["cpu", "cuda"],
    *,
    reward_workers: int = 1,
    fused_kernels: bool = False,
) -> TrainingSetup:
    """The recipe as a `TrainingSetup`.

    Args:
        recipe: the recipe.
        device: from `device_of`.
        reward_workers: where the recipe has no number, as many as its rows need.
        fused_kernels: compute log-probabilities with them.

    Raises:
        ConfigError: the recipe needs a GPU, and `device` is ``cpu``.
    """
    data, algorithm, resources = recipe.data, recipe.algorithm, recipe.resources
    if device == "cpu":
        _refuse_what_needs_a_gpu(recipe)
    return TrainingSetup(
        model_path=_model_path(recipe),
        train_files=[str(recipe.path(file)) for file in data.train],
        val_files=[str(recipe.path(file)) for file in data.validation],
        device=device,
        devices=resources.devices,
        nodes=resources.nodes,
        **_separate(recipe),
        engine=_engine(recipe),
        backend=resources.backend,
        flash_attention=recipe.model.flash_attention and device == "cuda",
        fused_kernels=fused_kernels,
        max_num_seqs=_max_num_seqs(recipe),
        prompt_key=data.prompt_key,
        prompts=data.batch,
        responses=recipe.rollout.n,
        max_prompt_tokens=data.max_prompt_tokens,
        max_response_tokens=data.max_response_tokens,
        steps=algorithm.steps,
        learning_rate=algorithm.learning_rate,
        temperature=recipe.rollout.temperature,
        estimator=algorithm.estimator,
        kl_loss=algorithm.kl_loss,
        micro_batch=algorithm.micro_batch,
        validate_every=recipe.schedule.validate_every,
        save_every=recipe.schedule.save_every,
        name=recipe.name,
        folder=recipe.output,
        logger=recipe.schedule.logger,
        seed=recipe.seed,
        reward_workers=resources.reward_workers or reward_workers,
        ray_address=resources.ray_address,
    )


def _engine(recipe: Recipe) -> Literal["transformers", "vllm", "sglang"]:
    return "transformers" if recipe.rollout.engine == "auto" else recipe.rollout.engine


def _max_num_seqs(recipe: Recipe) -> int:
    """The recipe's number, or all responses that are asked for at once, within limits.

    The asynchronous modes ask for another batch while one is trained on. With fewer than are asked
    for, the last responses begin when the first have ended.
    """
    if recipe.rollout.max_num_seqs is not None:
        return recipe.rollout.max_num_seqs
    batches = 2 if "async" in recipe.trainer.mode else 1
    return min(_MAX_SEQS, max(_MIN_SEQS, batches * recipe.data.batch * recipe.rollout.n))


def uses_fused_kernels(
    recipe: Recipe, device: Literal["cpu", "cuda"], extra: Mapping[str, str]
) -> tuple[bool, str]:
    """Whether the policy's log-probabilities are computed by fused kernels, and if not, why.

    The reason is empty where they are not needed: on a CPU, with flash-attn, under Megatron.

    Args:
        recipe: the recipe.
        device: from `device_of`.
        extra: overrides from the command line.
    """
    plain = recipe.model.flash_attention or recipe.resources.backend == "megatron"
    if device == "cpu" or plain:
        return False, ""
    overrides = {key.lstrip("+"): v for key, v in flattened({**recipe.verl, **extra}).items()}
    if "actor_rollout_ref.model.use_fused_kernels" in overrides:
        return False, ""
    return fused_kernels(recipe.path(recipe.model.path), recipe.model.path, overrides)


def _separate(recipe: Recipe) -> dict[str, Any]:
    """Fields of `TrainingSetup` for rollouts on devices of their own; empty for other modes."""
    trainer, resources = recipe.trainer, recipe.resources
    if not trainer.is_separate:
        return {}
    transfer = resources.weight_transfer
    if transfer == "auto":
        transfer = "gloo" if _engine(recipe) == "transformers" else "nccl"
    return {
        "rollout_devices": resources.rollout_devices or 1,
        "rollout_nodes": resources.rollout_nodes or 1,
        "updates_per_sync": trainer.updates_per_sync or 1,
        "weight_transfer": transfer,
    }


def _refuse_what_needs_a_gpu(recipe: Recipe) -> None:
    for key, value, instead in (
        (("rollout", "engine"), recipe.rollout.engine, "transformers"),
        (("resources", "backend"), recipe.resources.backend, "fsdp2"),
        (("resources", "weight_transfer"), recipe.resources.weight_transfer, "gloo"),
    ):
        if value in ("vllm", "sglang", "megatron", "nccl"):
            recipe.source.fail(
                key,
                f"is {value}, which needs a GPU, and this runs on the CPU: leave it out, or write "
                f"{instead}",
            )
    if (recipe.trainer.updates_per_sync or 1) > 1:
        recipe.source.fail(
            ("trainer", "updates_per_sync"),
            "must be 1 on the CPU: for further updates verl copies the weights before them to the "
            "host's memory, where they are already, so that its copy changes with them",
        )


def refuse_ineffective_overrides(recipe: Recipe, extra: Mapping[str, str]) -> None:
    """Raise a ConfigError for overrides that verl ignores, or that bypass zerowait's rewards.

    Also for a NaN, which passes every comparison in verl, and for a key that the recipe sets twice.

    Args:
        recipe: the recipe, with its overrides under ``verl:``.
        extra: overrides from the command line.
    """
    twice = given_twice(recipe.verl)
    if twice is not None:
        recipe.source.fail(("verl", twice[1]), f"sets what {twice[0]!r} has set already")
    for key, value in flattened({**recipe.verl, **extra}).items():
        given = read(value) if isinstance(value, str) else value
        if isinstance(given, float) and math.isnan(given):
            raise ConfigError(f"verl's configuration: {key} must be a number, not {value}")
    findings = examine({**_verls_model(recipe), **recipe.verl, **extra})
    if findings:
        raise ConfigError("; ".join(str(finding) for finding in findings))


def compose_arguments(recipe: Recipe, setup: TrainingSetup, extra: Mapping[str, str]) -> list[str]:
    """The overrides for verl's trainer: ours, the recipe's ``verl:``, and `extra`; the last wins.

    Args:
        recipe: the recipe.
        setup: the recipe's `setup_of`.
        extra: overrides in Hydra's syntax, from the command line.
    """
    own = {**base_overrides(setup), **_reward(recipe), **_search(recipe)}
    # An epoch has at least one step, so the steps always end the run before the epochs do.
    own["trainer.total_epochs"] = steps_of(recipe, extra)
    composed = merged_overrides(own, recipe.verl)
    given = {key.lstrip("+"): value for key, value in extra.items()}
    spelled = {key.lstrip("+"): key for key in [*extra, *composed]}
    kept = {key: value for key, value in composed.items() if key.lstrip("+") not in given}
    return [*arguments(kept), *(f"{spelled[key]}={value}" for key, value in given.items())]


def _reward(recipe: Recipe) -> dict[str, object]:
    folder = Path(recipe.output)
    trainer = recipe.trainer
    tickets: dict[str, object] = {
        "+reward.zerowait.redeem_s": trainer.redeem_s_or_default,
        "+reward.zerowait.max_abstained": trainer.max_abstained_or_default,
    }
    if trainer.mode == MODE:
        tickets["+reward.zerowait.early_gradients"] = trainer.early_gradients or "auto"
    sampled = {"+reward.zerowait.max_sampled_batches": trainer.max_sampled_batches_or_default}
    return {
        "reward.reward_manager.name": "zerowait",
        "+actor_rollout_ref.rollout.agent.agent_loop_manager_class": MANAGER,
        "+reward.zerowait.config": recipe.reward_path,
        "+reward.zerowait.record": str(folder),
        "trainer.v1.trainer_mode": trainer.mode,
        **(tickets if trainer.gives_tickets else {}),
        **(sampled if trainer.stops_sampling else {}),
        **_verls_model(recipe),
        "trainer.rollout_data_dir": str(folder / ROLLOUTS),
        "trainer.validation_data_dir": str(folder / VALIDATION),
    }


def _verls_model(recipe: Recipe) -> Mapping[str, object]:
    """Overrides by which verl serves the reward model that a judge of the recipe asks."""
    return OVERRIDES if asks_verls_model(recipe.reward) else {}


def _search(recipe: Recipe) -> dict[str, object]:
    if recipe.search is None:
        return {}
    settings: dict[str, Any] = msgspec.to_builtins(recipe.search)
    retriever = settings.pop("retriever")
    return {
        "actor_rollout_ref.rollout.agent.default_agent_loop": "search",
        **{f"+search.{key}": value for key, value in settings.items()},
        **{f"+search.retriever.{key}": value for key, value in retriever.items()},
    }


def _model_path(recipe: Recipe) -> str:
    local = recipe.path(recipe.model.path)
    return str(local) if local.is_dir() else recipe.model.path
