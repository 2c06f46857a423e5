"""Weights & Biases."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from zerowait.config import WandbLog

STEP: Final = "zerowait/step"
"""The metric that is the x-axis of ours: W&B's own step counts calls of ``log``."""
_OURS: Final = ("reward/*", "judge/*", "val-core/*", "val-aux/*")


class WandbLogger:
    """Logs into the program's run if it has begun one, else into a run of its own.

    W&B drops what is logged for an earlier step than its last one. So metrics are added to the row
    that the program's own next ``log`` writes, and no step is taken that the program might name.

    Args:
        settings: of the run.
        shown: the configuration of a run of its own.
    """

    def __init__(self, settings: WandbLog, shown: Mapping[str, Any]) -> None:
        self._settings = settings
        self._shown = shown
        self._run = _active_run()
        self._is_own = self._run is None

    def prepare(self) -> None:
        """Nothing has to work at once."""

    def open(self) -> None:
        """Begin a run, if there is none; the program may begin another one beside it."""
        if self._run is None:
            import wandb

            settings = self._settings
            self._run = wandb.init(
                project=settings.project,
                entity=settings.entity,
                name=settings.name,
                group=settings.group,
                dir=settings.dir,
                mode=settings.mode,
                config=dict(self._shown),
                reinit="create_new",
                settings=wandb.Settings(console="off"),
            )
        self._run.define_metric(STEP, hidden=True)
        for name in _OURS:
            self._run.define_metric(name, step_metric=STEP)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Write the metrics of a step."""
        assert self._run is not None  # noqa: S101 - it was opened
        self._run.log({**metrics, STEP: step}, commit=self._is_own)

    def close(self) -> None:
        """End the run, if it is its own."""
        if self._is_own and self._run is not None:
            self._run.finish()


def _active_run() -> Any:
    """The program's run; None without one. Where W&B was never imported there is none."""
    return getattr(sys.modules.get("wandb"), "run", None)
