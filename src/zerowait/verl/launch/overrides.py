"""Hydra overrides of verl's configuration for a `TrainingSetup`, on a CPU or on GPUs.

They are all that ``verl.trainer.main_ppo`` needs::

    env $(environment) python -m verl.trainer.main_ppo $(arguments(base_overrides(setup)))
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from zerowait.errors import ConfigError
from zerowait.verl.launch.hydra_syntax import written
from zerowait.verl.launch.training_setup import TrainingSetup

DATASET = "pkg://zerowait.verl.dataset"
WEIGHT_TRANSFER = "zerowait.verl.trainer.checkpoint_engine"
_BUCKET_MEGABYTES = 256
_RAY_CPUS = 16


def environment(setup: TrainingSetup) -> dict[str, str]:
    """The environment variables of the trainer's process.

    On a CPU, OpenMP's threads must sleep while they wait: verl's processes share the cores, and
    threads that spin in one process stop the others.
    """
    variables = {
        "TOKENIZERS_PARALLELISM": "false",
        "RAY_USAGE_STATS_ENABLED": "0",
        "HYDRA_FULL_ERROR": "1",
    }
    if setup.device == "cpu":
        variables |= {
            "VERL_PLATFORM": "cpu",
            "OMP_WAIT_POLICY": "PASSIVE",
            "OMP_NUM_THREADS": str(threads(setup)),
        }
    return variables


def threads(setup: TrainingSetup) -> int:
    """Number of threads for each process that computes."""
    return max(1, len(os.sched_getaffinity(0)) // (setup.devices + setup.rollout_devices))


def base_overrides(setup: TrainingSetup) -> dict[str, object]:
    """The overrides by Hydra key; a key that verl's own files do not have starts with +.

    Raises:
        ConfigError: the estimator needs a critic, which verl cannot load without flash-attn.
    """
    return {
        **_data(setup),
        **_files(setup, "actor_rollout_ref.model"),
        **_actor(setup),
        **_critic(setup),
        **_rollout(setup),
        **_separate(setup),
        **_trainer(setup),
        **_ray(setup),
    }


def arguments(overrides: Mapping[str, object]) -> list[str]:
    """The overrides as Hydra reads them on a command line.

    >>> arguments({"trainer.logger": ["console"], "trainer.save_freq": -1, "a.b": None})
    ['trainer.logger=["console"]', 'trainer.save_freq=-1', 'a.b=null']
    """
    return [f"{key}={written(value)}" for key, value in overrides.items()]


def merged_overrides(base: Mapping[str, object], over: Mapping[str, object]) -> dict[str, object]:
    """`base` updated with `over`; a key is the same with and without its leading +.

    >>> merged_overrides({"+a": 1, "b": 2}, {"a": 3})
    {'+a': 3, 'b': 2}
    """
    spelled = {key.lstrip("+"): key for key in base}
    result = dict(base)
    for key, value in over.items():
        result[spelled.get(key.lstrip("+"), key)] = value
    return result


def _data(setup: TrainingSetup) -> dict[str, object]:
    return {
        "data.train_files": setup.train_files,
        "data.val_files": setup.val_files,
        "data.prompt_key": setup.prompt_key,
        "data.train_batch_size": setup.prompts,
        "data.max_prompt_length": setup.max_prompt_tokens,
        "data.max_response_length": setup.max_response_tokens,
        "data.filter_overlong_prompts": True,
        "data.seed": setup.seed,
        "data.dataloader_num_workers": 0,
        "data.custom_cls.path": DATASET,
        "data.custom_cls.name": "RewardDataset",
    }


def _files(setup: TrainingSetup, model: str) -> dict[str, object]:
    if setup.backend == "megatron":
        return {f"{model}.path": setup.model_path}
    attention = "flash_attention_2" if setup.flash_attention else "sdpa"
    return {
        f"{model}.path": setup.model_path,
        f"{model}.use_remove_padding": setup.flash_attention,
        f"{model}.enable_gradient_checkpointing": setup.device == "cuda",
        f"+{model}.override_config.attn_implementation": attention,
    }


def _actor(setup: TrainingSetup) -> dict[str, object]:
    actor, ref = "actor_rollout_ref.actor", "actor_rollout_ref.ref"
    overrides: dict[str, object] = {
        "actor_rollout_ref.model.use_fused_kernels": setup.fused_kernels,
        "algorithm.adv_estimator": setup.estimator,
        f"{actor}.optim.lr": setup.learning_rate,
        f"{actor}.ppo_mini_batch_size": setup.prompts // setup.updates_per_sync,
        # By tokens, not by rows: a number of rows has to divide the batch of every device.
        f"{actor}.use_dynamic_bsz": True,
        f"{actor}.ppo_max_token_len_per_gpu": setup.micro_batch * setup.longest,
        f"{actor}.use_kl_loss": setup.kl_loss > 0,
        f"{actor}.kl_loss_coef": setup.kl_loss,
    }
    if setup.backend == "megatron":
        return {"model_engine": "megatron", **overrides}
    return {
        **_precision(setup, f"{actor}.fsdp_config", f"{ref}.fsdp_config"),
        **overrides,
        f"{actor}.strategy": "fsdp2",
        f"{actor}.use_torch_compile": False,
        f"{actor}.fsdp_config.use_torch_compile": False,
        f"{ref}.fsdp_config.use_torch_compile": False,
    }


def _critic(setup: TrainingSetup) -> dict[str, object]:
    """Overrides of the critic, which only ``gae`` has; it starts from the policy's weights."""
    if setup.estimator != "gae":
        return {}
    overrides = {
        **_files(setup, "critic.model"),
        "critic.ppo_max_token_len_per_gpu": setup.micro_batch * setup.longest,
    }
    if setup.backend == "megatron":
        return overrides
    if setup.device == "cuda" and not setup.flash_attention:
        raise ConfigError(
            "the estimator gae needs a critic, which verl loads on GPUs with the flash-attn "
            "package only: install it and write model: {flash_attention: true}, or use an "
            "estimator without values such as grpo"
        )
    return {
        **_precision(setup, "critic.fsdp"),
        **overrides,
        "critic.strategy": "fsdp2",
        "critic.fsdp.use_torch_compile": False,
    }


def _precision(setup: TrainingSetup, *engines: str) -> dict[str, object]:
    """Overrides for float32; verl's default is bfloat16 on every device."""
    if setup.bfloat16:
        return {}
    kinds = ("param_dtype", "reduce_dtype", "buffer_dtype")
    return {f"+{engine}.mixed_precision.{kind}": "fp32" for engine in engines for kind in kinds}


def _rollout(setup: TrainingSetup) -> dict[str, object]:
    rollout = "actor_rollout_ref.rollout"
    overrides: dict[str, object] = {
        f"{rollout}.name": setup.engine,
        f"{rollout}.n": setup.responses,
        f"{rollout}.temperature": setup.temperature,
        f"{rollout}.seed": setup.seed,
        f"{rollout}.max_num_seqs": setup.max_num_seqs,
        f"{rollout}.dtype": "bfloat16" if setup.bfloat16 else "float32",
        f"{rollout}.tensor_model_parallel_size": 1,
        f"{rollout}.calculate_log_probs": True,
        f"{rollout}.val_kwargs.n": setup.val_responses,
        f"{rollout}.agent.num_workers": setup.agent_workers,
        f"{rollout}.checkpoint_engine.update_weights_bucket_megabytes": _BUCKET_MEGABYTES,
    }
    if setup.device == "cpu":
        overrides[f"+{rollout}.engine_kwargs.transformers.threads"] = threads(setup)
    return overrides


def _separate(setup: TrainingSetup) -> dict[str, object]:
    """Overrides for rollouts on devices of their own and the transfer of weights to them."""
    if not setup.rollout_devices:
        return {}
    rollout = "actor_rollout_ref.rollout"
    overrides: dict[str, object] = {
        f"{rollout}.n_gpus_per_node": setup.rollout_devices,
        f"{rollout}.nnodes": setup.rollout_nodes,
        "trainer.v1.separate_async.parameter_sync_step": setup.updates_per_sync,
        f"{rollout}.checkpoint_engine.backend": setup.weight_transfer,
    }
    if setup.weight_transfer == "gloo":
        overrides[f"{rollout}.checkpoint_engine.custom_backend_module"] = WEIGHT_TRANSFER
    return overrides


def _trainer(setup: TrainingSetup) -> dict[str, object]:
    return {
        "reward.num_workers": setup.reward_workers,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": setup.storage_units,
        "trainer.device": setup.device,
        "trainer.n_gpus_per_node": setup.devices,
        "trainer.nnodes": setup.nodes,
        "trainer.total_training_steps": setup.steps,
        # An epoch has at least one step, so the steps always end the run before the epochs do.
        "trainer.total_epochs": setup.steps,
        "trainer.val_before_train": True,
        "trainer.test_freq": setup.validate_every or setup.steps,
        "trainer.save_freq": setup.save_every or -1,
        "trainer.project_name": "zerowait",
        "trainer.experiment_name": setup.name,
        "trainer.default_local_dir": setup.folder,
        "trainer.logger": setup.logger,
    }


def _ray(setup: TrainingSetup) -> dict[str, object]:
    init = "ray_kwargs.ray_init"
    if setup.ray_address is not None:
        variables = environment(setup).items()
        return {
            f"+{init}.address": setup.ray_address,
            **{f"+{init}.runtime_env.env_vars.{name}": value for name, value in variables},
        }
    # without it Ray joins the cluster of RAY_ADDRESS, or one that `ray start` left on this host
    overrides: dict[str, object] = {
        f"+{init}.address": "local",
        f"+{init}.include_dashboard": False,
    }
    if setup.device == "cpu":
        # Logical numbers: verl reserves several CPUs per device, and counts devices as GPUs.
        devices = setup.devices + setup.rollout_devices
        overrides[f"{init}.num_cpus"] = _RAY_CPUS + 8 * devices
        overrides[f"+{init}.num_gpus"] = devices
    return overrides
