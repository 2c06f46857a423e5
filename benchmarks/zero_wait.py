"""What a slow judge costs a training step, under verl's own trainers and under ``zerowait``.

    python benchmarks/zero_wait.py [--steps 5] [--modes sync zerowait] [--cache on] [--out FOLDER]

The tiny policy trains on the CPU with a judge at a median of 2 s and, in nearly every batch, one
answer or a few that take 10 s; then the same run with a judge that answers at once. The difference
of the step times is what the rewards cost (``cost s``); ``exposed s`` is what the trainer itself
measured and logged, where it does. Old and reference log-probabilities are the window that hides
rewards. The first step is left out: everything is slower in it.

The judge's verdict depends on the request alone, so a response has one reward, in all modes, with
and without a cache; the exit code is 1 if any has another, or if a mode of ours takes longer for a
step than the mode of verl's that it extends, by more than the spread (the larger standard deviation
of the two). A run that is in FOLDER is not made again, so that the table may be made one row at a
time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

import msgspec

from zerowait.hub import read_rewards
from zerowait.testing import FakeJudge, Latency, Script
from zerowait.tiny_models.arithmetic import TinyFiles, make_arithmetic_policy
from zerowait.verl.trainer_modes import BASE_MODES

COMMAND = [sys.executable, "-c", "from zerowait.cli import main; main()"]
MODES = [name for ours, verls in BASE_MODES.items() for name in (verls, ours)]
SLOW = Latency(median_s=2.0, sigma=0.2, stall_share=3 / 32, stall_s=10.0)
AT_ONCE = Latency()
HIDING = ("old_log_prob", "ref", "values")
EXPOSED = "reward/exposed_reward_s"
DONE = "done"
_PAIR = re.compile(r"([\w/@]+):(?:np\.\w+\()?(-?[\d.]+(?:e-?\d+)?)\)?(?= - |$)")
_COLUMNS = ("step s", "spread s", "gen s", "window s", "at once s", "cost s", "exposed s", "lost")


class Run(msgspec.Struct, frozen=True):
    """Means over the steps of a run, in seconds, and the rewards by what was rewarded."""

    step_s: float
    spread_s: float
    gen_s: float
    hiding_s: float
    exposed_s: float | None
    abstained: int
    rewards: dict[tuple[str, str], float | None]
    first_step: Counter[tuple[str, str, float | None]]


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=5)
    options.add_argument("--modes", nargs="+", default=MODES)
    options.add_argument("--cache", choices=["on", "off"], default="off")
    options.add_argument("--out", type=Path, help="keeps the runs, and what is there is not made")
    chosen = options.parse_args()
    with contextlib.ExitStack() as stack:
        folder = chosen.out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        print(f"{'mode':<26}{'cache':>6}" + "".join(f"{name:>11}" for name in _COLUMNS), flush=True)
        runs = [row(folder, mode, chosen.cache, steps=chosen.steps) for mode in chosen.modes]
    slower = compare_times(dict(zip(chosen.modes, runs, strict=True)))
    sys.exit(compare(chosen.modes, runs) or slower)


def row(folder: Path, mode: str, cache: str, *, steps: int) -> Run:
    """Make the two runs of a row and print it."""
    slow = train(folder / f"{mode}-cache-{cache}", mode, SLOW, cache, steps=steps)
    quick = train(folder / f"{mode}-at-once", mode, AT_ONCE, "off", steps=steps)
    exposed = "-" if slow.exposed_s is None else f"{slow.exposed_s:.2f}"
    cost_s = slow.step_s - quick.step_s
    numbers = (slow.step_s, slow.spread_s, slow.gen_s, slow.hiding_s, quick.step_s, cost_s)
    cells = [*(f"{number:.2f}" for number in numbers), exposed, str(slow.abstained)]
    print(f"{mode:<26}{cache:>6}" + "".join(f"{cell:>11}" for cell in cells), flush=True)
    return slow


def compare_times(runs: Mapping[str, Run]) -> int:
    """Whether a mode of ours is slower than verl's by more than the spread; says by how much."""
    slower = 0
    for ours, verls in BASE_MODES.items():
        if {ours, verls} <= runs.keys():
            more_s = runs[ours].step_s - runs[verls].step_s
            spread_s = max(runs[ours].spread_s, runs[verls].spread_s)
            print(f"{ours} against {verls}: {more_s:+.2f} s a step, spread {spread_s:.2f} s")
            slower += more_s > spread_s
    return int(slower > 0)


def compare(modes: Sequence[str], runs: Sequence[Run]) -> int:
    """Whether any response that two modes had got another reward; says what they had in common."""
    first, differing = runs[0], 0
    for mode, run in zip(modes[1:], runs[1:], strict=True):
        common = first.rewards.keys() & run.rewards.keys()
        differ = sum(first.rewards[key] != run.rewards[key] for key in common)
        step = (first.first_step & run.first_step).total()
        print(
            f"{modes[0]} and {mode}: {step} of {first.first_step.total()} rewarded responses of "
            f"step 1 are the same; of {len(common)} responses that both runs had, {differ} have "
            "another reward"
        )
        differing += differ
    return int(differing > 0)


def policy(folder: Path) -> TinyFiles:
    """The policy that every run of `folder` starts from."""
    made = folder / "policy.json"
    if not made.exists():
        made.write_bytes(msgspec.json.encode(make_arithmetic_policy(folder / "policy")))
    return msgspec.json.decode(made.read_bytes(), type=TinyFiles)


def train(out: Path, mode: str, latency: Latency, cache: str, *, steps: int) -> Run:
    """A run of verl's trainer in `mode`, kept in `out`."""
    if (out / DONE).exists():
        return summary(out)
    assets = policy(out.parent)
    out.mkdir(exist_ok=True)
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
            "cache": {"path": str(out / "judgements.db")} if cache == "on" else "off",
            "on_failure": "neutral",
        }
        recipe = {
            "name": out.name,
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
            "trainer": {"mode": mode},
        }
        path = out / "recipe.yaml"
        path.write_text(json.dumps(recipe))
        overrides = ["trainer.val_before_train=False", "trainer.test_freq=-1"]
        command = [*COMMAND, "train", str(path), f"--output={out}", *overrides]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
        if done.returncode:
            sys.exit(f"{out.name} failed:\n{done.stderr[-3000:]}")
    (out / DONE).touch()
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
    later = steps[1:]
    records = list(read_rewards(out))
    text = {id(r): (json.dumps(r.sample.prompt), r.sample.response) for r in records}
    return Run(
        step_s=fmean(step["timing_s/step"] for step in later),
        spread_s=stdev(step["timing_s/step"] for step in later) if later[1:] else 0.0,
        gen_s=fmean(step["timing_s/gen"] for step in later),
        hiding_s=fmean(sum(step.get(f"timing_s/{part}", 0.0) for part in HIDING) for step in later),
        exposed_s=fmean(step[EXPOSED] for step in later) if EXPOSED in later[0] else None,
        abstained=sum(record.reward.value is None for record in records),
        rewards={text[id(r)]: r.reward.value for r in records},
        first_step=Counter((*text[id(r)], r.reward.value) for r in records if r.sample.step == 1),
    )


if __name__ == "__main__":
    main()
