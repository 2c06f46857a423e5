"""Ctrl-C at a moment when Python would answer it with a traceback."""

import json
import subprocess
import sys

import pytest

INTERRUPTED_WHILE_LOADING = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from zerowait.cli import main
main()
"""
INTERRUPTED_AT_ITS_END = """
import atexit, os, signal
atexit.register(os.kill, os.getpid(), signal.SIGINT)
from zerowait.cli import main
main()
"""


@pytest.fixture
def run(tmp_path):
    row = {"prompt": "q", "response": "<answer>Rome</answer>", "ground_truth": "Rome"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "reward.yaml").write_text("components: {answer: {scorer: qa_em}}")

    def run(code, *arguments):
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize(
    "module",
    ["zerowait.cli.app", "typer", "msgspec", "zerowait.engine", "zerowait.cli.tables", "zerowait.scorers.qa_em"],
)  # fmt: skip
def test_an_interrupt_while_modules_are_loaded_is_one_line_and_exit_code_130(run, tmp_path, module):
    code = INTERRUPTED_WHILE_LOADING.format(module=module)
    done = run(code, "score", "rows.jsonl", "-c", "reward.yaml")
    assert done.returncode == 130
    assert done.stderr.startswith("zerowait: interrupted")
    assert done.stderr.count("\n") == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["reward.yaml", "rows.jsonl"]


def test_an_interrupt_of_a_command_that_is_done_says_nothing(run, tmp_path):
    done = run(INTERRUPTED_AT_ITS_END, "score", "rows.jsonl", "-c", "reward.yaml")
    assert done.stderr == ""
    assert "1 row, mean reward 1.0000" in done.stdout
    assert (tmp_path / "rows.rewards.jsonl").exists()
