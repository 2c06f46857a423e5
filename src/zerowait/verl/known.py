"""Names that verl 0.9.1 knows, so that a wrong one is refused before verl is imported."""

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
