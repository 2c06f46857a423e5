"""Retry a training that failed before its first step for a transient reason.

verl, torch and Ray look for free ports, close them, and listen on them seconds later: where several
trainings start on one machine, another one may have taken the port by then. And Ray waits only 30 s
for its node to come up, however busy the machine is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from zerowait.verl.launch.log import tail

_TRANSIENT_FAILURES: Final[Mapping[str, re.Pattern[str]]] = {
    "a port that was free when verl looked was taken when it listened": re.compile(
        r"EADDRINUSE|address already in use", re.IGNORECASE
    ),
    "Ray's node did not come up in the 30 s that Ray waits for it": re.compile(
        r"The current node timed out during startup"
    ),
}
_ATTEMPTS: Final = 3
_LINES: Final = 400


def run_with_retries(
    run: Callable[[], int],
    *,
    folder: Path,
    has_begun: Callable[[], bool],
    tell: Callable[[str], None],
) -> int:
    """The exit code of `run`, after at most 3 attempts.

    Args:
        run: one attempt, from the trainer's start to its exit code.
        folder: the run's folder, whose log names the failure.
        has_begun: whether a step was finished; then the training is not started again.
        tell: called with the reason before each further attempt.
    """
    for _ in range(_ATTEMPTS - 1):
        code = run()
        if code == 0 or has_begun():
            return code
        log = tail(folder, _LINES)
        why = next((why for why, sign in _TRANSIENT_FAILURES.items() if sign.search(log)), None)
        if why is None:
            return code
        tell(f"{why}: starting again")
    return run()
