import os
import signal
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest


@pytest.fixture
def dying():
    """``with dying(pid, judge)``: the process stands still, and is killed at the end.

    Meanwhile nothing more is committed, `judge` has counted all that it was sent, and nobody has
    started the process again.
    """

    @contextmanager
    def stopped(pid, judge):
        os.kill(pid, signal.SIGSTOP)
        try:
            while not stands_still(pid):
                time.sleep(0.001)
            # what was sent before this question arrives before it
            urllib.request.urlopen(judge.url.removesuffix("/v1") + "/healthz").close()
            yield
        finally:
            os.kill(pid, signal.SIGKILL)

    return stopped


def stands_still(pid):
    """Whether each of its threads does."""
    try:
        stats = [stat.read_text() for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return all(stat.rpartition(")")[2].split()[0] in "TtZX" for stat in stats)
