"""What `.ci/run` does when a package index hiccups, and what the Makefile tells pip."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MAKE = """#!/bin/sh
echo "$1" >> calls
case "$(grep -c . calls) $1" in {fails}) echo broken; exit 2 ;; esac
echo "made $1"
"""


@pytest.fixture
def ci(tmp_path):
    """Runs a copy of `.ci/run` with a `make` that fails at these calls; what it was asked for."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    for name in ("redis-server", "chromedriver"):  # which it would install
        found = tmp_path / "bin" / name
        found.write_text("#!/bin/sh\n")
        found.chmod(0o755)

    def run(fails, failed=0):
        make = tmp_path / "bin/make"
        make.write_text(MAKE.format(fails=fails))
        make.chmod(0o755)
        if failed:
            (tmp_path / ".pytest_cache/v/cache").mkdir(parents=True)
            names = dict.fromkeys((f"tests/a.py::test_{number}" for number in range(failed)), True)
            (tmp_path / ".pytest_cache/v/cache/lastfailed").write_text(json.dumps(names, indent=2))
        env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PAUSE_S": "0"}
        done = subprocess.run([tmp_path / ".ci/run"], env=env, capture_output=True, text=True, check=False)  # fmt: skip
        return done, (tmp_path / "calls").read_text().split()

    return run


def test_an_installation_that_fails_twice_is_tried_a_third_time(ci):
    done, calls = ci("[12]\\ *")
    assert calls == [".venv/.ready-test"] * 3 + ["lint", "docs", "adapters", "test"]
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "made test"
    assert len(done.stderr.splitlines()) == 2


def test_an_installation_that_fails_three_times_is_a_failure_and_nothing_is_checked(ci):
    done, calls = ci("*ready*")
    assert calls == [".venv/.ready-test"] * 3
    assert done.returncode == 1
    assert "failed 3 times" in done.stderr


@pytest.mark.parametrize("check", ["lint", "docs", "adapters", "test"])
def test_a_check_that_fails_is_a_failure_at_once(ci, check):
    done, calls = ci(f"*\\ {check}")
    assert calls.count(check) == 1
    assert calls[-1] == check
    assert done.returncode == 2


@pytest.mark.parametrize(("fails", "code"), [("5\\ *", 0), ("[56]\\ *", 2)])
def test_a_few_tests_that_failed_are_run_once_more_and_fail_if_they_fail_again(ci, fails, code):
    done, calls = ci(fails, failed=3)
    assert calls[-2:] == ["test", "test"]
    assert done.returncode == code
    assert "tests/a.py::test_2" in done.stdout


def test_many_tests_that_failed_are_a_failure_at_once(ci):
    done, calls = ci("*\\ test", failed=4)
    assert calls.count("test") == 1
    assert done.returncode == 2


def told_to_pip(**environment):
    """What a recipe of the Makefile sees of pip's settings."""
    done = subprocess.run(
        ["make", "--file", ROOT / "Makefile", "--file", "-", "--silent", "shown"],
        input="shown:\n\t@echo $$PIP_RETRIES $$PIP_DEFAULT_TIMEOUT\n",
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_pip_is_told_to_be_patient_unless_the_user_said_otherwise():
    assert told_to_pip() == ["10", "60"]
    assert told_to_pip(PIP_RETRIES="3", PIP_DEFAULT_TIMEOUT="180") == ["3", "180"]


def test_an_environment_that_could_not_be_made_is_made_anew(tmp_path):
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\n[ "$1" = -c ] && exit 1\n'
        'mkdir -p "$3/bin"; echo half > "$3/bin/python"\n'
        '[ -e tried ] && echo whole > "$3/bin/python" || { touch tried; exit 1; }\n'
    )
    python.chmod(0o755)
    command = ["make", "-f", ROOT / "Makefile", "env/bin/python", f"PYTHON={python}", "VENV=env"]
    first, second = (
        subprocess.run(command, cwd=tmp_path, capture_output=True, check=False) for _ in range(2)
    )
    assert first.returncode != 0
    assert second.returncode == 0
    assert (tmp_path / "env/bin/python").read_text() == "whole\n"
