"""What the loggers of W&B and Trackio share: a run that the program began, or one of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

SettingsT = TypeVar("SettingsT")

STEP: Final = "zerowait/step"
"""The metric that is the x-axis of ours: a tracker's own step counts calls of ``log``."""


class TrackedRun(Generic[SettingsT]):
    """A tracker's run: the program's if it has begun one, else one that `open` begins.

    Args:
        settings: of the logger.
        shown: the configuration that a run of ours shows.
        run: the program's; None: it has begun none.
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
