"""Two ranks of one TRL training share one service, which rank 0 runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from zerowait.testing import FakeJudge

pytestmark = pytest.mark.e2e


def test_two_ranks_with_half_a_group_each_share_limits_judgements_and_groups(tiny, tmp_path):
    with FakeJudge() as judge:
        script = Path(__file__).with_name("rank.py")
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        port = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
        out = tmp_path / "out"
        out.mkdir()
        ran = subprocess.run(
            [*torchrun, *port, str(script), tiny, judge.url, str(out)],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr[-9000:]
        seen = judge.seen
    assert seen.repeats == 0
    logs = json.loads((out / "logs.json").read_text())
    assert len(logs["rewards"]) == 4
    # a shape exists only where the whole group was seen
    for value, *parts in zip(*logs.values(), strict=True):
        assert value == pytest.approx(sum(parts))
