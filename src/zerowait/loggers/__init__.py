"""Loggers: where a run's metrics go, each in a thread of its own."""

from zerowait.loggers.background import BackgroundLogger, MetricLogger
from zerowait.loggers.run_config import shown_config
from zerowait.loggers.table import check_installed, logger_of

__all__ = ["BackgroundLogger", "MetricLogger", "check_installed", "logger_of", "shown_config"]
