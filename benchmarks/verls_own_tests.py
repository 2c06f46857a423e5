"""verl's own CPU tests of what zerowait plugs into, with the plug-in loaded and without it.

    git clone https://github.com/verl-project/verl && python benchmarks/verls_own_tests.py verl

The tests run against the verl that is installed, which may be older or newer than the checkout:
some fail for that reason alone. So each file runs twice, and the exit code is 1 if any test passes
without the plug-in and does not with it, or if a file did not come to its end.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from importlib.metadata import version
from pathlib import Path

import msgspec

from zerowait.tiny_models.arithmetic import make_arithmetic_policy

PLACES = (
    "tests/experimental/reward_loop",
    "tests/workers/reward_manager",
    "tests/trainer/ppo/v1",
    "tests/trainer/ppo",
    "tests/experimental/agent_loop",
)
MODEL = "models/Qwen/Qwen2.5-0.5B-Instruct"
"""Where verl's tests look for a tokenizer, under the home folder."""
LIMIT_S = 400
RAY_CPUS = 8
"""What Ray believes to have: verl's fixtures start a TransferQueue, whose controller and two
storages take a CPU each, and on a machine of two wait for the third without end."""
COROUTINES = """
import asyncio
import inspect

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
"""
"""Runs verl's asynchronous tests, for which verl needs another package."""


def main() -> None:
    """Print a line for each file; the exit code says whether the plug-in broke anything."""
    options = argparse.ArgumentParser()
    options.add_argument("checkout", type=Path)
    options.add_argument("--only", default="", help="files whose path contains this")
    chosen = options.parse_args()
    files = [file for file in cpu_tests(chosen.checkout) if chosen.only in str(file)]
    print(f"verl {version('verl')}; {len(files)} files of {chosen.checkout}", flush=True)
    broken = 0
    with tempfile.TemporaryDirectory() as folder:
        home, place = Path(folder) / "home", Path(folder) / "checkout"
        make_arithmetic_policy(home / "tiny")
        (home / MODEL).parent.mkdir(parents=True)
        shutil.copytree(home / "tiny" / "model", home / MODEL)
        # without the checkout's own verl, which would be imported in the place of the installed
        shutil.copytree(chosen.checkout / "tests", place / "tests")
        (place / "conftest.py").write_text(COROUTINES)
        for file in files:
            without, loaded = (run(place, file, home, plugins) for plugins in ("none", "zerowait"))
            lost = sorted(without.passed - loaded.passed)
            broken += len(lost) + (without.unfinished or loaded.unfinished)
            print(f"{loaded}, without zerowait {without}: {file}", flush=True)
            for name in lost:
                print(f"     only without zerowait: {name}", flush=True)
    sys.exit(int(broken > 0))


class Run(msgspec.Struct, frozen=True):
    """The names of the tests that passed, and how pytest ended unless none failed."""

    passed: set[str]
    last_line: str
    unfinished: bool = False

    def __str__(self) -> str:
        return f"{len(self.passed)} passed" + (f" ({self.last_line})" if self.last_line else "")


def cpu_tests(checkout: Path) -> list[Path]:
    """Test files that need no GPU, relative to the checkout."""
    found = [file for place in PLACES for file in sorted((checkout / place).glob("*_on_cpu.py"))]
    if not found:
        sys.exit(f"{checkout} is no checkout of verl: it has no tests/**/*_on_cpu.py")
    return [file.relative_to(checkout) for file in found]


def run(place: Path, file: Path, home: Path, plugins: str) -> Run:
    """What became of the tests of `file`, with these plug-ins of verl."""
    report, log = place / "report.xml", place / "pytest.log"
    report.unlink(missing_ok=True)
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *(f"--junitxml={report}", "--rootdir=.", str(file)),
    ]
    variables = {
        "HF_HUB_OFFLINE": "1",
        "HOME": str(home),
        "RAY_OVERRIDE_RESOURCES": f'{{"CPU": {RAY_CPUS}}}',
        "VERL_USE_EXTERNAL_PLUGINS": plugins,
    }
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=place,
            env=os.environ | variables,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            return Run(set(), f"not done after {LIMIT_S} s", unfinished=True)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    last = (log.read_text(errors="replace").splitlines() or ["said nothing"])[-1]
    if not report.exists():
        return Run(set(), f"exit code {code}: {last}", unfinished=True)
    cases = ET.parse(report).getroot().iter("testcase")  # noqa: S314 - pytest wrote it
    passed = {f"{case.get('classname')}::{case.get('name')}" for case in cases if not len(case)}
    return Run(passed, last if code else "")


if __name__ == "__main__":
    main()
