"""Whether gradients that are computed before the last reward are those of one update.

    python benchmarks/early_gradients.py [--steps 5] [--only NAME ...] [--out FOLDER]

The tiny policy trains on the CPU in float32, once with ``early_gradients: on`` and once with
``off``, on the same prompts with the same judge, whose verdicts, faults and delays depend on the
request alone; one answer in four takes seconds, so that gradients are computed in parts. After the
steps the parameters of both runs are compared. No prompt is twice in a step: rollouts of equal
prompts draw their responses in the order in which they arrive, which differs from run to run.

- ``moved``: how far the largest step took a parameter from where it began,
- ``apart``: the largest difference between the two runs, divided by ``moved``,
- ``norm``: the largest relative difference of the gradient's norm in a step,
- ``early``: the share of rows whose gradient was computed before the last reward.

Rounding in float32 makes differences of 1e-7 of each gradient; AdamW divides by the gradient's own
size, which turns the rounding of the smallest gradients into something larger. Cases with SGD have
no such division. Two data-parallel ranks are compared in tests/verl/test_update_parts.py, on the
same rows: a rollout on two devices samples other responses from run to run. A run that is in FOLDER
is not made again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import load_file

from zerowait.testing import FakeJudge, Garbage, Latency, Script
from zerowait.tiny_models.arithmetic import TinyFiles, make_arithmetic_policy

COMMAND = [sys.executable, "-c", "from zerowait.cli import main; main()"]
SLOW = Latency(median_s=0.3, sigma=0.3, stall_share=1 / 32, stall_s=4.0)
ACTOR = "actor_rollout_ref.actor"
SGD = {f"{ACTOR}.optim.optimizer": "SGD", f"{ACTOR}.optim.lr": 0.1}
SEQ_MEAN = {f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean"}
ENTROPY = {f"{ACTOR}.entropy_coeff": 0.01}
WARM_UP = {f"{ACTOR}.optim.lr_warmup_steps": 4}
CASES: dict[str, dict[str, Any]] = {
    f"{estimator} {'seq' if shares else 'token'}-mean {lost} kl SGD": {
        "estimator": estimator,
        "on_failure": lost,
        "kl_loss": 0.1,
        "verl": SGD | shares,
    }
    for estimator in ("grpo", "rloo")
    for shares in ({}, SEQ_MEAN)
    for lost in ("neutral", "mask")
}
"""Every case that users meet: estimator, denominator of the loss, policy for abstained rows."""
CASES |= {
    "grpo token-mean neutral": {},
    "grpo seq-mean mask kl": {"on_failure": "mask", "kl_loss": 0.1, "verl": SEQ_MEAN},
    "grpo token-mean mask kl": {"on_failure": "mask", "kl_loss": 0.1},
    "grpo token-mean neutral entropy warm-up": {"verl": ENTROPY | WARM_UP},
    "rloo token-mean mask": {"estimator": "rloo", "on_failure": "mask"},
}
_BATCH, _BATCHES = 8, 64
_PAIR = re.compile(r"([\w/@]+):(?:np\.\w+\()?(-?[\d.]+(?:e-?\d+)?)\)?(?= - |$)")


class Run(msgspec.Struct, frozen=True):
    """The parameters after the last step, and what was logged at each step."""

    parameters: dict[str, torch.Tensor]
    steps: list[dict[str, float]]


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=5)
    options.add_argument("--only", nargs="+", default=[*CASES])
    options.add_argument("--out", type=Path, help="keeps the runs, and what is there is not made")
    chosen = options.parse_args()
    with contextlib.ExitStack() as stack:
        folder = chosen.out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(exist_ok=True)
        print(f"{'case':<42}{'moved':>10}{'apart':>10}{'norm':>10}{'early':>8}", flush=True)
        for name in chosen.only:
            on, off = (train(folder, name, early, steps=chosen.steps) for early in ("on", "off"))
            print(f"{name:<42}{compare(policy(folder), on, off)}", flush=True)


def compare(start: TinyFiles, on: Run, off: Run) -> str:
    """The columns of a row."""
    first = load_file(Path(start.model) / "model.safetensors")
    names = first.keys() & off.parameters.keys()
    moved = max(float((off.parameters[n] - first[n]).abs().max()) for n in names)
    apart = max(float((on.parameters[n] - off.parameters[n]).abs().max()) for n in names)
    norm = max(
        abs(a["actor/grad_norm"] / b["actor/grad_norm"] - 1)
        for a, b in zip(on.steps, off.steps, strict=True)
    )
    early = sum(step["reward/early_gradients"] for step in on.steps) / len(on.steps)
    return f"{moved:>10.1e}{apart / moved:>10.1e}{norm:>10.1e}{early:>8.2f}"


def policy(folder: Path) -> TinyFiles:
    """The policy that every run of `folder` starts from, and its questions."""
    made = folder / "policy.json"
    if not made.exists():
        files = make_arithmetic_policy(folder / "policy")
        _write_distinct_batches(Path(files.train))
        made.write_bytes(msgspec.json.encode(files))
    return msgspec.json.decode(made.read_bytes(), type=TinyFiles)


def _write_distinct_batches(train: Path) -> None:
    """Order the rows so that no batch has a question twice."""
    by_question: dict[str, str] = {}
    for line in train.read_text().splitlines():
        by_question.setdefault(str(msgspec.json.decode(line)["prompt"]), line)
    questions = [*by_question.values()]
    batches = range(0, _BATCH * _BATCHES, _BATCH)
    rows = [questions[(start + row) % len(questions)] for start in batches for row in range(_BATCH)]
    train.write_text("".join(f"{row}\n" for row in rows))


def train(folder: Path, name: str, early: str, *, steps: int) -> Run:
    """A run of a case, kept in `folder`."""
    out = folder / f"{re.sub('[^a-z0-9]+', '-', name.lower())}-{early}"
    if not (out / "done").exists():
        out.mkdir(exist_ok=True)
        faults = [Garbage(share=1 / 8, always=True)]
        with FakeJudge(Script(seed=5, latency=SLOW, faults=faults)) as judge:
            recipe = recipe_of(CASES[name], policy(folder), judge, early, steps=steps)
            (out / "recipe.yaml").write_text(json.dumps(recipe))
            overrides = ["trainer.val_before_train=False", "trainer.test_freq=-1"]
            command = [*COMMAND, "train", str(out / "recipe.yaml"), f"--output={out}", *overrides]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
        if done.returncode:
            sys.exit(f"{out.name} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        (out / "done").touch()
    saved = out / f"global_step_{steps}" / "actor" / "huggingface" / "model.safetensors"
    logged = [
        {key: float(value) for key, value in _PAIR.findall(line)}
        for line in (out / "train.log").read_text().splitlines()
        if "timing_s/step" in line
    ]
    return Run(load_file(saved), logged)


def recipe_of(
    case: dict[str, Any], assets: TinyFiles, judge: FakeJudge, early: str, *, steps: int
) -> dict[str, Any]:
    """The recipe of a case."""
    reward = {
        "components": {"answer": {"scorer": "qa_em"}, "quality": {"judge": "q", "weight": 0.3}},
        "judges": {
            "q": {
                "endpoints": [{"base_url": judge.url, "model": "fake"}],
                "verdict": {"integer": [1, 10]},
                "max_tokens": 64,
            }
        },
        "traffic": {"concurrency": 64, "hedge": "off", "attempts": 1},
        "cache": "off",
        "on_failure": case.get("on_failure", "neutral"),
    }
    return {
        "name": "early",
        "seed": 3,
        "model": {"path": assets.model},
        "data": {
            "train": [assets.train],
            "validation": [assets.validation],
            "batch": _BATCH,
            "max_prompt_tokens": 32,
            "max_response_tokens": 16,
        },
        "rollout": {"n": 4},
        "algorithm": {
            "steps": steps,
            "learning_rate": 1e-4,
            "micro_batch": 8,
            "kl_loss": case.get("kl_loss", 0.0),
            "estimator": case.get("estimator", "grpo"),
        },
        "reward": reward,
        "resources": {"device": "cpu", "devices": 1},
        "schedule": {"save_every": steps},
        "trainer": {"mode": "zerowait", "early_gradients": early, "max_abstained": 1},
        "verl": {
            "data.shuffle": False,
            f"{ACTOR}.checkpoint.save_contents": ["hf_model"],
            **case.get("verl", {}),
        },
    }


if __name__ == "__main__":
    main()
