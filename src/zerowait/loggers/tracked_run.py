"""A run of a tracker, such as W&B or Trackio: the program's own where it has begun one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

SettingsT = TypeVar("SettingsT")

STEP: Final = "zerowait/step"
"""The metric that is the x-axis of ours: a tracker's own step counts calls of ``log``."""


class TrackedRun(Generic[SettingsT]):
    """Logs into the program's run if it has begun one, else into a run of its own.

    Args:
        settings: of the run.
        shown: the configuration of a run of its own.
        run: the program's; None without one.
    """

    def __init__(self, settings: SettingsT, shown: Mapping[str, Any], run: Any) -> None:
        self._settings = settings
        self._shown = dict(shown)
        self._run = run
        self._is_own = run is None

    def prepare(self) -> None:
        """Nothing has to work at once."""

    def open(self) -> None:
        """Begin a run, if there is none."""
        if self._run is None:
            self._run = self._begin()

    def close(self) -> None:
        """End the run, if it is its own."""
        if self._is_own and self._run is not None:
            self._run.finish()

    def _begin(self) -> Any:
        raise NotImplementedError
