"""MLflow."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from zerowait.config import MlflowLog

_AT_ONCE: Final = 500
"""Metrics, and parameters in fifths; a tracking server takes 1,000 and 100 in one request."""


_NOT_IN_KEYS: Final = re.compile(r"[^\w\-. :/]")
_OF_ANY_THREAD: Final = "_get_latest_active_run"


class MlflowLogger:
    """Logs into the program's run if it has begun one, else into a run of its own.

    Uses MLflow's client, not its fluent functions: those know only the runs of their own thread.

    Args:
        settings: of the run.
        shown: the parameters of a run of its own.
    """

    def __init__(self, settings: MlflowLog, shown: Mapping[str, Any]) -> None:
        self._settings = settings
        self._shown = shown
        self._run_id = _active_run_id()
        self._is_own = self._run_id is None
        self._client: Any = None

    def prepare(self) -> None:
        """Nothing has to work at once."""

    def open(self) -> None:
        """Begin a run, if there is none."""
        from mlflow import MlflowClient
        from mlflow.entities import Param

        settings = self._settings
        if not self._is_own:
            self._client = MlflowClient()
            return
        client = self._client = MlflowClient(settings.tracking_uri)
        known = client.get_experiment_by_name(settings.experiment)
        experiment = client.create_experiment(settings.experiment) if known is None else None
        run = client.create_run(
            known.experiment_id if experiment is None else experiment, run_name=settings.name
        )
        self._run_id = run.info.run_id
        params = [Param(key, str(value)) for key, value in self._shown.items()]
        for first in range(0, len(params), _AT_ONCE // 5):
            client.log_batch(self._run_id, params=params[first : first + _AT_ONCE // 5])

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Write the metrics of a step."""
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        told = [Metric(_key(name), value, now_ms, step) for name, value in metrics.items()]
        for first in range(0, len(told), _AT_ONCE):
            self._client.log_batch(self._run_id, metrics=told[first : first + _AT_ONCE])

    def close(self) -> None:
        """End the run, if it is its own."""
        if self._is_own:
            self._client.set_terminated(self._run_id)


def _key(name: str) -> str:
    """A name that MLflow takes: a relative path without empty parts, of certain characters.

    >>> _key("val-core//reward/mean"), _key("val-core/a?b/reward/mean")
    ('val-core/_/reward/mean', 'val-core/a_b/reward/mean')
    """
    parts = _NOT_IN_KEYS.sub("_", name).split("/")
    return "/".join("_" if part in ("", ".", "..") else part for part in parts)


def _active_run_id() -> str | None:
    """The program's run; None without one. Where MLflow was never imported there is none.

    A trainer may call a reward in another thread than the one in which it began its run.
    """
    mlflow = sys.modules.get("mlflow")
    if mlflow is None:
        return None
    run = mlflow.active_run()
    if run is None:
        of_any_thread = getattr(sys.modules.get("mlflow.tracking.fluent"), _OF_ANY_THREAD, None)
        run = None if of_any_thread is None else of_any_thread()
    return None if run is None else str(run.info.run_id)
