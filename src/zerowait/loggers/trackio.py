"""Trackio."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

from zerowait.config import TrackioLog
from zerowait.loggers.tracked_run import STEP, TrackedRun


class TrackioLogger(TrackedRun[TrackioLog]):
    """Logs into the program's run if it has begun one, else into a run of its own.

    Args:
        settings: of the run.
        shown: the configuration of a run of its own.
    """

    def __init__(self, settings: TrackioLog, shown: Mapping[str, Any]) -> None:
        # where Trackio was never imported there is no run
        variables = sys.modules.get("trackio.context_vars")
        run = None if variables is None else variables.current_run.get()
        super().__init__(settings, shown, run)

    def open(self) -> None:
        """Begin a run, if there is none."""
        with redirect_stdout(sys.stderr):  # it prints, and stdout may be the output of a command
            super().open()

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Write the metrics of a step."""
        if self._is_own:
            self._run.log(dict(metrics), step=step)
        else:
            self._run.log({**metrics, STEP: step})

    def close(self) -> None:
        """End the run, if it is its own."""
        with redirect_stdout(sys.stderr):
            super().close()

    def _begin(self) -> Any:
        import trackio

        settings = self._settings
        return trackio.init(
            project=settings.project,
            name=settings.name,
            space_id=settings.space_id,
            config=self._shown,
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
