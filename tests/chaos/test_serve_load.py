"""Some seconds of what ``benchmarks/serve_load.py`` does to the service for a minute."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(__file__).parents[2] / "benchmarks" / "serve_load.py"


@pytest.mark.timeout(300)
def test_fifty_clients_lose_nothing_while_the_judge_fails_and_the_service_ends():
    done = subprocess.run(
        [sys.executable, str(COMMAND), "--clients", "50", "--seconds", "1"],
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"^rewards +(\d+)$", done.stdout, re.MULTILINE)[1]) > 0
    assert (
        int(re.search(r"^open at SIGTERM and answered +(\d+)$", done.stdout, re.MULTILINE)[1]) > 0
    )
