"""The loggers by name."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Final

from zerowait.config import (
    MlflowLog,
    OtelLog,
    PrometheusLog,
    RewardConfig,
    TensorboardLog,
    TrackioLog,
    WandbLog,
)
from zerowait.errors import MissingExtraError
from zerowait.loggers.background import MetricLogger
from zerowait.loggers.mlflow import MlflowLogger
from zerowait.loggers.otel import OtelLogger
from zerowait.loggers.run_config import shown_config
from zerowait.loggers.tensorboard import TensorboardLogger
from zerowait.loggers.trackio import TrackioLogger
from zerowait.loggers.wandb import WandbLogger

_PACKAGES: Final = {
    "wandb": ("wandb",),
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow",),
    "trackio": ("trackio",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
}


def logger_of(name: str, config: RewardConfig) -> MetricLogger:
    """The logger of this name, with the settings of `config`.

    It has to be made in the thread that opens the rewards: there, the run that the program has
    begun itself can be found.

    Args:
        name: of a logger in ``log_to``.
        config: the reward configuration.

    Raises:
        MissingExtraError: its package is not installed.
    """
    check_installed([name])
    shown = shown_config(config)
    match config.log_to.wanted[name]:
        case WandbLog() as settings:
            return WandbLogger(settings, shown)
        case TensorboardLog() as settings:
            return TensorboardLogger(settings, shown)
        case MlflowLog() as settings:
            return MlflowLogger(settings, shown)
        case TrackioLog() as settings:
            return TrackioLogger(settings, shown)
        case OtelLog() as settings:
            return OtelLogger(settings, config.judges)
        case PrometheusLog():
            raise ValueError("prometheus is served by the engine")


def check_installed(names: Iterable[str]) -> None:
    """Raise a MissingExtraError where the package of one of these loggers is not installed."""
    for name in names:
        if not all(map(_is_installed, _PACKAGES.get(name, ()))):
            raise MissingExtraError(f"log_to: {name}", extra=name)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of the package above it
        return False
