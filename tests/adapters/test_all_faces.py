"""One configuration gives the same rewards by every way into it, and asks its judge no more."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(__file__).parents[2] / "benchmarks" / "all_faces.py"
WAYS = ["library", "score", "connect", "trl", "verifiers", "openrlhf", "verl"]


@pytest.mark.timeout(600)
def test_every_way_gives_the_same_rewards_and_asks_for_each_distinct_judgement_once():
    done = subprocess.run(
        [sys.executable, str(COMMAND), "--rows", "200"],
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = re.findall(r"^(\w+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)", done.stdout, re.MULTILINE)
    assert [row[0] for row in table] == WAYS
    assert {row[1:] for row in table} == {("182", "18", "0", "170", "0")}
