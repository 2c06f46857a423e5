"""A Ray cluster of three nodes on this machine, whose nodes die: ``benchmarks/cluster.py``."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")

COMMAND = Path(__file__).parents[2] / "benchmarks" / "cluster.py"
ROWS = 900


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_no_row_is_lost_when_the_hubs_node_is_killed():
    """It asserts, too, that the hub is on the node that is told to have it."""
    done = subprocess.run(
        [sys.executable, COMMAND, "hub-killed-file", "--network", "loopback", "--json"],
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [counts] = json.loads(done.stdout)
    assert (counts["rewarded"], counts["lost"], counts["wrong"]) == (ROWS, 0, 0), counts
    assert counts["asked_again"] == 0, "a row that had its reward was judged again"
