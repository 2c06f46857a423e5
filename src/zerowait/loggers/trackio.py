"""Trackio."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

from zerowait.config import TrackioLog
from zerowait.loggers.wandb import STEP


class TrackioLogger:
    """Logs into the program's run if it has begun one, else into a run of its own.

    Args:
        settings: of the run.
        shown: the configuration of a run of its own.
    """

    def __init__(self, settings: TrackioLog, shown: Mapping[str, Any]) -> None:
        self._settings = settings
        self._shown = shown
        self._run = _active_run()
        self._is_own = self._run is None

    def prepare(self) -> None:
        """Nothing has to work at once."""

    def open(self) -> None:
        """Begin a run, if there is none."""
        if self._run is not None:
            return
        import trackio

        settings = self._settings
        with redirect_stdout(sys.stderr):  # it prints, and stdout may be the output of a command
            self._run = trackio.init(
                project=settings.project,
                name=settings.name,
                space_id=settings.space_id,
                config=dict(self._shown),
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Write the metrics of a step."""
        assert self._run is not None  # noqa: S101 - it was opened
        if self._is_own:
            self._run.log(dict(metrics), step=step)
        else:
            self._run.log({**metrics, STEP: step})

    def close(self) -> None:
        """End the run, if it is its own."""
        if self._is_own and self._run is not None:
            with redirect_stdout(sys.stderr):
                self._run.finish()


def _active_run() -> Any:
    """The program's run; None without one. Where Trackio was never imported there is none."""
    variables = sys.modules.get("trackio.context_vars")
    return None if variables is None else variables.current_run.get()
