"""When each phase of a training step began and ended, from verl's own timers."""

from __future__ import annotations

import time
from collections.abc import Mapping

from zerowait.hub import Phase


class PhaseTimes(dict[str, float]):
    """verl's seconds by phase of one step, which also keeps when each phase began and ended.

    verl's timers set a phase to 0 when it first ends, and then add the seconds that it lasted.

    >>> times = PhaseTimes({})
    >>> times["gen"] = 0.0
    >>> times["gen"] += 2.5
    >>> [round(phase.ended_at - phase.began_at, 1) for phase in times.phases]
    [2.5]
    """

    def __init__(self, seconds: Mapping[str, float]) -> None:
        super().__init__(seconds)
        self.phases: list[Phase] = []

    def __setitem__(self, name: str, seconds: float) -> None:
        """Set a phase's seconds; those that were added ended now."""
        lasted_s = seconds - self.get(name, 0.0)
        super().__setitem__(name, seconds)
        if lasted_s > 0:
            now = time.time()
            self.phases.append(Phase(name=name, began_at=now - lasted_s, ended_at=now))
