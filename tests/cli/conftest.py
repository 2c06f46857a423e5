import os
import subprocess
import sys
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from zerowait.cli import app

COMMAND = [sys.executable, "-c", "from zerowait.cli import main; main()"]


@contextmanager
def same_environment():
    """What a command tells its own process to use is not told to the next test."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


class Ended(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def zerowait(tmp_path, capfd, usual_collector):
    """Runs the command in `tmp_path` and in this process; how it ended, with its output."""

    def run(*arguments, env=None):
        capfd.readouterr()
        with same_environment(), pytest.MonkeyPatch.context() as here:
            here.chdir(tmp_path)
            here.setattr("signal.signal", lambda *_: None)  # this process keeps its own handlers
            for name, value in (env or {}).items():
                here.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                app.run([str(argument) for argument in arguments])
        return Ended(ended.value.code, *capfd.readouterr())

    return run


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
