"""Whether large batches with a shape train in every trainer mode of verl's and ours, on the CPU.

    python benchmarks/large_batches.py [--batches 64 256] [--modes sync zerowait ...] [--steps 2]

The tiny policy of `recipes/tiny` trains with eight responses a prompt, a judge over HTTP and a
length shape, which waits for all responses of its group: so that a trainer with too few reward
workers for a batch would never make a step. Prints for each batch and mode the steps made, rows
recorded and scored, and seconds a step; or the line by which the run was refused before it began.
The exit code is 1 if a run did neither.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from serving import show_load

from zerowait.cli.tables import show
from zerowait.hub import read_rewards
from zerowait.testing import FakeJudge, Latency, Script
from zerowait.tiny_models.arithmetic import make_arithmetic_policy

COMMAND = [sys.executable, "-c", "from zerowait.cli import main; main()"]
MODES = ("sync", "zerowait", "colocate_async", "zerowait_colocate_async")
PER_PROMPT = 8
REWARD = """
components:
  answer:  {{scorer: qa_em}}
  quality: {{judge: quality, weight: 0.02}}
  length:  {{shape: median_band, scale: 0.1}}
judges:
  quality:
    endpoints: [{{base_url: "{url}", model: fake}}]
    rubric: quality
    verdict: {{integer: [1, 10]}}
    max_tokens: 64
traffic: {{timeout_s: 30, deadline_s: 120, group_deadline_s: 300}}
cache: off
on_failure: neutral
"""
RECIPE = """
name: large
seed: 1
model: {{path: {assets}/model}}
data:
  train: [{assets}/train.jsonl]
  validation: [{assets}/validation.jsonl]
  batch: {batch}
  max_prompt_tokens: 32
  max_response_tokens: 16
rollout: {{n: {per_prompt}, temperature: 1.0}}
algorithm: {{steps: {steps}, learning_rate: 1.0e-3, micro_batch: 64}}
trainer: {{mode: {mode}}}
reward: reward.yaml
resources: {{device: cpu}}
"""


def main() -> int:
    """Print one row for each batch and mode."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--batches", nargs="+", type=int, default=[64, 256], help="prompts a step")
    options.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    options.add_argument("--steps", type=int, default=2)
    options.add_argument("--limit-s", type=float, default=1800.0, help="of one run")
    options.add_argument("--keep", type=Path, help="folder for the runs' logs and records")
    given = options.parse_args()
    table = [["rows a step", "mode", "steps", "recorded", "scored", "s a step", "outcome"]]
    with tempfile.TemporaryDirectory() as made:
        folder = (given.keep or Path(made)).resolve()
        make_arithmetic_policy(folder / "assets", rows=given.steps * max(given.batches))
        with FakeJudge(Script(latency=Latency(median_s=0.2, sigma=0.5))) as judge:
            (folder / "reward.yaml").write_text(REWARD.format(url=judge.url))
            for batch in given.batches:
                for mode in given.modes:
                    table.append(_trained(folder, batch, mode, given))
                    print(*table[-1], flush=True)
    show(table)
    show_load()
    return int(any(row[-1] == "failed" for row in table))


def _trained(folder: Path, batch: int, mode: str, given: argparse.Namespace) -> list[str]:
    """The table's row of one run."""
    recipe = folder / f"{mode}-{batch}.yaml"
    recipe.write_text(
        RECIPE.format(
            assets=folder / "assets",
            batch=batch,
            mode=mode,
            steps=given.steps,
            per_prompt=PER_PROMPT,
        )
    )
    run = folder / f"{mode}-{batch}"
    begun_s = time.perf_counter()
    try:
        done = subprocess.run(
            [*COMMAND, "train", str(recipe), f"--output={run}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=given.limit_s,
        )
    except subprocess.TimeoutExpired:
        return [str(batch * PER_PROMPT), mode, "", "", "", "", "failed"]
    took_s = time.perf_counter() - begun_s
    (folder / f"{mode}-{batch}.log").write_text(done.stdout + done.stderr)
    name = [str(batch * PER_PROMPT), mode]
    if done.returncode == 2 and not (run / "rewards.jsonl").exists():
        return [*name, "0", "", "", "", f"refused: {done.stderr.strip().splitlines()[-1]}"]
    rewards = [row for row in read_rewards(run) if row.sample.split == "train"]
    settled = {row.sample.step: row.settled_at for row in rewards}
    scored = sum(row.reward.value is not None for row in rewards)
    whole = len(rewards) >= given.steps * batch * PER_PROMPT
    return [
        *name,
        str(len(settled)),
        str(len(rewards)),
        str(scored),
        f"{took_s / given.steps:.0f}",
        "trained" if done.returncode == 0 and whole else "failed",
    ]


if __name__ == "__main__":
    sys.exit(main())
