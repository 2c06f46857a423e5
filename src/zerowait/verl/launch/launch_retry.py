"""A training that dies before it began, through no fault of its own, is started again.

verl, torch and Ray look for free ports, let them go, and listen on them seconds later. Where
several trainings start on one machine, another may listen there by then. And Ray waits 30 s for its
node to come up, whatever else the machine has to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from zerowait.verl.launch.run import tail

_MISFORTUNES: Final[Mapping[str, re.Pattern[str]]] = {
    "a port that was free when verl looked was taken when it listened": re.compile(
        r"EADDRINUSE|address already in use", re.IGNORECASE
    ),
    "Ray's node did not come up in the 30 s that Ray waits for it": re.compile(
        r"The current node timed out during startup"
    ),
}
_STARTS: Final = 3
_LINES: Final = 400


def started_again(
    run: Callable[[], int],
    *,
    folder: Path,
    has_begun: Callable[[], bool],
    tell: Callable[[str], None],
) -> int:
    """The exit code of `run`, which is called again while bad luck kept it from beginning.

    Args:
        run: a training, from its start to its exit code.
        folder: where its log is.
        has_begun: whether a step was finished: what is lost then is more than a start.
        tell: told why it is started again.
    """
    for _ in range(_STARTS - 1):
        code = run()
        if code == 0 or has_begun():
            return code
        log = tail(folder, _LINES)
        why = next((why for why, sign in _MISFORTUNES.items() if sign.search(log)), None)
        if why is None:
            return code
        tell(f"{why}: starting again")
    return run()
