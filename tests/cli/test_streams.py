"""The command in a process that was started without its standard streams, as daemons are."""

import json
import subprocess
import sys

import pytest


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_it_works_without_standard_streams(tmp_path, closed):
    (tmp_path / "r.yaml").write_text("components: {answer: {scorer: qa_em}}")
    row = {"prompt": "q", "response": "<answer>Rome</answer>", "ground_truth": "Rome"}
    (tmp_path / "d.jsonl").write_text(json.dumps(row) + "\n")
    python = f"{sys.executable} -c 'from zerowait.cli import main; main()'"
    line = f"{python} score d.jsonl -c r.yaml -o out.jsonl {closed}"
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, timeout=60, check=False)
    assert done.returncode == 0
    assert json.loads((tmp_path / "out.jsonl").read_text())["reward"] == 1.0
