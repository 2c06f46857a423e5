import os
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-c", "from zerowait.cli import main; main()"]


@pytest.fixture
def zerowait_process(tmp_path):
    """Runs the command in `tmp_path`; the finished process with its output."""

    def run(*arguments, env=None):
        return subprocess.run(
            [*COMMAND, *map(str, arguments)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=290,  # pytest's own limit for a test comes before, where no mark says more
            check=False,
            env=os.environ | (env or {}),
        )

    return run


@pytest.fixture
def start_zerowait(tmp_path):
    """Starts the command in `tmp_path` and kills it at the end if it still runs."""
    started = []

    def start(*arguments, stdout=subprocess.PIPE):
        process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            cwd=tmp_path,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
