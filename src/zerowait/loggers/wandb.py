"""Weights & Biases."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from zerowait.config import WandbLog
from zerowait.loggers.tracked_run import STEP, TrackedRun

_OURS: Final = ("reward/*", "judge/*", "val-core/*", "val-aux/*")


class WandbLogger(TrackedRun[WandbLog]):
    """Logs into the program's run if it has begun one, else into a run of its own.

    W&B drops what is logged for an earlier step than its last one. So metrics are added to the row
    that the program's own next ``log`` writes, and no step is taken that the program might name.

    Args:
        settings: of the run.
        shown: the configuration of a run of its own.
    """

    def __init__(self, settings: WandbLog, shown: Mapping[str, Any]) -> None:
        # where W&B was never imported there is no run
        super().__init__(settings, shown, getattr(sys.modules.get("wandb"), "run", None))

    def open(self) -> None:
        """Begin a run, if there is none; the program may begin another one beside it."""
        super().open()
        self._run.define_metric(STEP, hidden=True)
        for name in _OURS:
            self._run.define_metric(name, step_metric=STEP)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Write the metrics of a step."""
        self._run.log({**metrics, STEP: step}, commit=self._is_own)

    def _begin(self) -> Any:
        import wandb

        settings = self._settings
        return wandb.init(
            project=settings.project,
            entity=settings.entity,
            name=settings.name,
            group=settings.group,
            dir=settings.dir,
            mode=settings.mode,
            config=self._shown,
            reinit="create_new",
            settings=wandb.Settings(console="off"),
        )
