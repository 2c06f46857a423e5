import os
import signal
import time
import urllib.request
from pathlib import Path

import pytest


@pytest.fixture
def kill():
    """Kills a process; returns when it has ended and `judge` has counted all that it was sent."""

    def killed(pid, judge):
        os.kill(pid, signal.SIGKILL)
        while not has_ended(pid):
            time.sleep(0.001)
        # what was sent before this question arrives before it
        urllib.request.urlopen(judge.url.removesuffix("/v1") + "/healthz").close()

    return killed


def has_ended(pid):
    """Also where nobody has waited for it yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"
