"""What a slow judge costs a training step, under verl's own trainers and under ``zerowait``.

    python benchmarks/zero_wait.py [--steps 6] [--modes sync,zerowait,colocate_async]

The tiny policy trains on the CPU with a judge at a median of 2 s and, in nearly every batch, one
answer that takes 10 s; then the same run with a judge that answers at once. The difference of the
step times is what the rewards cost. Every response gets the same reward in all modes, or the table
says so. The first step is left out: everything is slower in it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from statistics import fmean

import msgspec

from zerowait.hub import read_rewards
from zerowait.testing import FakeJudge, Latency, Script
from zerowait.verl.tiny import Tiny, make_tiny

COMMAND = [sys.executable, "-c", "from zerowait.cli import main; main()"]
SLOW = Latency(median_s=2.0, sigma=0.2, stall_share=3 / 32, stall_s=10.0)
AT_ONCE = Latency()
HIDING = ("old_log_prob", "ref", "values")
_PAIR = re.compile(r"([\w/@]+):(?:np\.\w+\()?(-?[\d.]+(?:e-?\d+)?)\)?(?= - |$)")


class Run(msgspec.Struct, frozen=True):
    """Means over the steps of a run, in seconds, and the rewards by what was rewarded."""

    step_s: float
    gen_s: float
    hiding_s: float
    rewards: dict[tuple[str, str], float | None]
    same_first_step: Counter[tuple[str, str, float | None]]


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=6)
    options.add_argument("--modes", default="sync,zerowait,colocate_async")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        assets = make_tiny(Path(folder))
        first: Run | None = None
        print(
            f"{'mode':<16}{'step s':>8}{'gen s':>8}{'window s':>10}{'at once s':>11}{'cost s':>8}"
        )
        for mode in chosen.modes.split(","):
            slow = train(Path(folder), assets, mode, SLOW, steps=chosen.steps)
            quick = train(Path(folder), assets, mode, AT_ONCE, steps=chosen.steps)
            print(
                f"{mode:<16}{slow.step_s:>8.2f}{slow.gen_s:>8.2f}{slow.hiding_s:>10.2f}"
                f"{quick.step_s:>11.2f}{slow.step_s - quick.step_s:>8.2f}",
                flush=True,
            )
            first = first or slow
            compare(mode, first, slow)


def compare(mode: str, first: Run, run: Run) -> None:
    """Say how many responses of the first mode were seen again, and whether any reward differs."""
    common = first.rewards.keys() & run.rewards.keys()
    differ = sum(first.rewards[key] != run.rewards[key] for key in common)
    same = "the same" if first.same_first_step == run.same_first_step else "OTHER"
    print(
        f"  {mode}: {same} responses and rewards in step 1; of {len(common)} responses that both "
        f"runs had, {differ} have another reward"
    )


def train(folder: Path, assets: Tiny, mode: str, latency: Latency, *, steps: int) -> Run:
    """A run of verl's trainer in `mode`."""
    name = f"{mode}-{'slow' if latency is SLOW else 'quick'}"
    with FakeJudge(Script(seed=5, latency=latency)) as judge:
        reward = {
            "components": {
                "answer": {"scorer": "qa_em"},
                "quality": {"judge": "q", "weight": 0.02},
            },
            "judges": {
                "q": {
                    "endpoints": [{"base_url": judge.url, "model": "fake"}],
                    "verdict": {"integer": [1, 10]},
                    "max_tokens": 64,
                }
            },
            "traffic": {"concurrency": 64, "hedge": "off"},
            "cache": "off",
            "on_failure": "neutral",
        }
        recipe = {
            "name": name,
            "seed": 3,
            "model": {"path": assets.model},
            "data": {
                "train": [assets.train],
                "validation": [assets.validation],
                "batch": 8,
                "max_prompt_tokens": 32,
                "max_response_tokens": 16,
            },
            "rollout": {"n": 4},
            "algorithm": {"steps": steps, "learning_rate": 1e-4, "micro_batch": 1, "kl_loss": 0.01},
            "reward": reward,
            "resources": {"device": "cpu"},
            "trainer": {"mode": "zerowait" if mode == "zerowait" else "sync"},
        }
        path = folder / f"{name}.yaml"
        path.write_text(json.dumps(recipe))
        out = folder / name
        overrides = ["trainer.val_before_train=False", "trainer.test_freq=-1"]
        if mode not in ("sync", "zerowait"):
            overrides.append(f"trainer.v1.trainer_mode={mode}")
        command = [*COMMAND, "train", str(path), f"--output={out}", *overrides]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
        if done.returncode:
            sys.exit(f"{name} failed:\n{done.stderr[-3000:]}")
    return summary(out)


def summary(out: Path) -> Run:
    """What the log and the record of a run say."""
    steps = [
        {key: float(value) for key, value in _PAIR.findall(line)}
        for line in (out / "train.log").read_text().splitlines()
        if "timing_s/step" in line
    ]
    if len(steps) < 2:
        sys.exit(f"{out}: the log has {len(steps)} steps, and the first one is left out")
    records = list(read_rewards(out))
    text = {id(r): (json.dumps(r.sample.prompt), r.sample.response) for r in records}
    return Run(
        step_s=fmean(step["timing_s/step"] for step in steps[1:]),
        gen_s=fmean(step["timing_s/gen"] for step in steps[1:]),
        hiding_s=fmean(
            sum(step.get(f"timing_s/{part}", 0.0) for part in HIDING) for step in steps[1:]
        ),
        rewards={text[id(r)]: r.reward.value for r in records},
        same_first_step=Counter(
            (*text[id(r)], r.reward.value) for r in records if r.sample.step == 1
        ),
    )


if __name__ == "__main__":
    main()
