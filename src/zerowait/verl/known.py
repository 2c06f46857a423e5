"""Names that verl 0.9.1 knows, so that a wrong one is refused before verl is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zerowait.verl.declared import FLOAT, INT, LIST, NULL, TEXT
from zerowait.verl.estimators import ESTIMATORS
from zerowait.verl.modes import BUILT_ON

LOGGERS = (
    "clearml",
    "console",
    "file",
    "mlflow",
    "rl_insight",
    "swanlab",
    "tensorboard",
    "trackio",
    "vemlp_wandb",
    "wandb",
)
"""verl 0.9.1's trackers, ``verl.utils.tracking.Tracking.supported_backend``."""

_ACTOR, _CRITIC, _ROLLOUT = "actor_rollout_ref.actor", "critic", "actor_rollout_ref.rollout"
_AGGREGATIONS: Final = (
    "token-mean",
    "token-sum",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
)
_KL: Final = ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3")
_PENALTIES: Final = (*_KL, *(f"{name}+" for name in _KL))
_ENGINES: Final = ("fsdp", "fsdp2", "fsdp_turbo", "megatron", "torchtitan", "veomni", "automodel")

CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "trainer.resume_mode": ("auto", "disable", "resume_path"),
    "trainer.device": ("cpu", "cuda", "npu"),
    "trainer.v1.sampler.max_off_policy_strategy": ("drop", "wait"),
    "algorithm.kl_penalty": _PENALTIES,
    "algorithm.kl_ctrl.type": ("fixed", "adaptive"),
    "algorithm.pf_ppo.reweight_method": ("pow", "max_min", "max_random"),
    f"{_ACTOR}.kl_loss_type": _PENALTIES,
    f"{_ACTOR}.loss_agg_mode": _AGGREGATIONS,
    f"{_CRITIC}.loss_agg_mode": _AGGREGATIONS,
    f"{_ROLLOUT}.mode": ("async",),
    "data.truncation": ("error", "left", "right", "middle"),
}
"""Names that verl compares with, by the keys that they are values of."""

REGISTRIES: Final[Mapping[str, tuple[str, ...]]] = {
    "trainer.v1.trainer_mode": (*BUILT_ON.values(), *BUILT_ON),
    "algorithm.adv_estimator": ESTIMATORS,
    f"{_ACTOR}.policy_loss.loss_mode": (
        "vanilla",
        "bypass_mode",
        "cispo",
        "clip_cov",
        "dppo_kl",
        "dppo_tv",
        "dro",
        "geo_mean",
        "gpg",
        "gspo",
        "kl_cov",
        "sapo",
    ),
    f"{_ACTOR}.strategy": _ENGINES,
    "actor_rollout_ref.ref.strategy": _ENGINES,
    f"{_CRITIC}.strategy": _ENGINES,
    f"{_ROLLOUT}.name": ("transformers", "vllm", "sglang", "trtllm"),
}
"""Names that others may add to: a module that verl is told to import, or another plug-in."""

_COUNT, _PATH = frozenset({INT, NULL}), frozenset({TEXT, NULL})
ALSO: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(
        (
            "data.gen_batch_size",
            "data.seed",
            "data.val_batch_size",
            "trainer.max_actor_ckpt_to_keep",
            "trainer.max_critic_ckpt_to_keep",
            "trainer.total_training_steps",
            "trainer.v1.sampler.max_off_policy_threshold",
        ),
        _COUNT,
    ),
    **dict.fromkeys(
        (
            "trainer.default_hdfs_dir",
            "trainer.resume_from_path",
            "trainer.rollout_data_dir",
            "trainer.validation_data_dir",
        ),
        _PATH,
    ),
    **dict.fromkeys(("data.train_files", "data.val_files"), frozenset({LIST})),
    "trainer.esi_redundant_time": frozenset({FLOAT}),
    "trainer.ray_wait_register_center_timeout": frozenset({FLOAT}),
    "actor_rollout_ref.model.lora.alpha": frozenset({FLOAT}),
}
"""What a value may be beside what verl's YAML has there, where no dataclass says it."""

COUNTS: Final = frozenset(
    {
        "data.max_prompt_length",
        "data.max_response_length",
        "data.train_batch_size",
        "reward.num_workers",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units",
        "trainer.n_gpus_per_node",
        "trainer.nnodes",
        "trainer.total_epochs",
        "trainer.total_training_steps",
        "trainer.v1.separate_async.parameter_sync_step",
        f"{_ACTOR}.ppo_epochs",
        f"{_ACTOR}.ppo_max_token_len_per_gpu",
        f"{_ACTOR}.ppo_mini_batch_size",
        f"{_CRITIC}.ppo_epochs",
        f"{_ROLLOUT}.agent.num_workers",
        f"{_ROLLOUT}.n",
        f"{_ROLLOUT}.tensor_model_parallel_size",
        f"{_ROLLOUT}.val_kwargs.n",
    }
)
"""Numbers with which there is nothing to train where they are below 1."""

NEVER_MADE: Final = ("algorithm", "distillation", "global_profiler", "reward", "skip")
"""Sections that name a dataclass which verl's trainer does not make of them."""
