"""Names that verl 0.9.1 knows, so that a wrong one is refused before verl is imported."""

ESTIMATORS = (
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
"""verl 0.9.1's advantage estimators, ``verl.trainer.ppo.core_algos.AdvantageEstimator``."""
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
