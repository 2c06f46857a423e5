"""A training that dies before it began, because a port was taken, is started again.

verl, torch and Ray look for free ports, let them go, and listen on them seconds later. Where
several trainings start on one machine, another may listen there by then.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from zerowait.verl.launch import tail

_TAKEN: Final = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)
_STARTS: Final = 3
_LINES: Final = 400


def started_past_taken_ports(
    run: Callable[[], int],
    *,
    folder: Path,
    has_begun: Callable[[], bool],
    tell: Callable[[str], None],
) -> int:
    """The exit code of `run`, which is called again while a taken port kept it from beginning.

    Args:
        run: a training, from its start to its exit code.
        folder: where its log is.
        has_begun: whether a step was finished: what is lost then is more than a start.
        tell: told why it is started again.
    """
    for _ in range(_STARTS - 1):
        code = run()
        if code == 0 or has_begun() or not _TAKEN.search(tail(folder, _LINES)):
            return code
        tell("a port that was free when verl looked was taken when it listened: starting again")
    return run()
