"""A few thousand judgements of the storm that ``benchmarks/chaos.py`` runs at full length."""

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(__file__).parents[2] / "benchmarks" / "chaos.py"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("rows", [2000])
def test_nothing_wrong_comes_of_a_judge_that_does_everything_wrong(rows):
    done = subprocess.run(
        [sys.executable, str(COMMAND), "--rows", str(rows)],
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"judgements {rows + rows // 50:>43}".replace(" ", "") in done.stdout.replace(" ", "")
