"""Training runs, and what they are made of: each is made once, and shared where it can be."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from zerowait.hub import read_rewards
from zerowait.testing import FakeJudge, Garbage, Latency, Script, Status

collect_ignore = ["watching"]  # loaded into verl's processes, not into the tests
COMMAND = [sys.executable, "-c", "from zerowait.cli import main; main()"]
FAULTS = (Status(status=429, share=0.2), Garbage(share=0.05, always=True))
HARD_LIMIT_S = 840
ENVIRONMENT = os.environ | {"OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}

REWARD = {
    "components": {
        "answer": {"scorer": "qa_em"},
        "quality": {"judge": "q", "weight": 0.02},
        "length": {"shape": "median_band", "scale": 0.1},
    },
    # so many attempts that no judgement meets the fault of a fifth of them each time
    "traffic": {"concurrency": 32, "attempts": 16, "group_deadline_s": 600},
    "cache": "off",
    "prices": {"fake": {"input": 1.0, "output": 2.0}},
    "on_failure": "neutral",
}


def command(*arguments, **variables):
    """The command, killed with everything it started when it takes too long."""
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT | variables,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=HARD_LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        pytest.fail(f"{arguments} took longer than {HARD_LIMIT_S} s:\n{output[-3000:]}")
    return SimpleNamespace(code=process.returncode, output=output)


@pytest.fixture(scope="session")
def assets(tmp_path_factory):
    from zerowait.tiny_models.arithmetic import make_arithmetic_policy

    return make_arithmetic_policy(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def faults():
    return FAULTS


@pytest.fixture(scope="session")
def judge():
    script = Script(seed=5, latency=Latency(median_s=0.05, sigma=0.5), faults=FAULTS)
    with FakeJudge(script) as running:
        yield running


def train(
    folder: Path, assets, judge, *, devices: int, steps: int, reward=REWARD, variables=None, **parts
):
    """A finished training run of the tiny policy: its records and verl's own dumps."""
    endpoint = {"base_url": judge.url, "model": "fake"}
    judges = {"q": {"endpoints": [endpoint], "verdict": {"integer": [1, 10]}, "max_tokens": 64}}
    (folder / "reward.yaml").write_text(json.dumps(reward | {"judges": judges}))
    recipe = {
        "name": "e2e",
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
        "algorithm": {"steps": steps, "learning_rate": 1e-4, "micro_batch": 16},
        "reward": "reward.yaml",
        "resources": {"device": "cpu", "devices": devices},
        "schedule": {"logger": ["console", "file"]},
        **parts,
    }
    return run_recipe(folder, recipe, **(variables or {}))


def run_recipe(folder: Path, recipe, **variables):
    """The finished run of a recipe: its records, verl's own dumps and what verl logged."""
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    run = folder / "run"
    metrics = folder / "metrics.jsonl"
    done = command(
        *("train", folder / "recipe.yaml", "--output", run),
        VERL_FILE_LOGGER_PATH=str(metrics),
        TENSORBOARD_DIR=str(folder / "tensorboard"),
        **variables,
    )
    assert done.code == 0, done.output[-6000:]
    return SimpleNamespace(
        folder=folder,
        run=run,
        records=list(read_rewards(run)),
        dumped=dumps(run / "rollouts"),
        validated=dumps(run / "validation"),
        steps=[json.loads(line)["data"] for line in metrics.read_text().splitlines()],
        log=(run / "train.log").read_text(errors="replace"),
    )


@pytest.fixture(scope="session")
def zerowait_command():
    return command


@pytest.fixture(scope="session")
def recipes():
    return run_recipe


@pytest.fixture(scope="session")
def training():
    return train


def dumps(folder: Path):
    """The rows that verl itself wrote, by their key ``{uid}_{session}``."""
    rows = {}
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            rows[row["uid"].rsplit("_", 1)[0]] = row
    return rows


@pytest.fixture(scope="session")
def one_device(tmp_path_factory, assets, judge):
    """verl's own trainer, which other runs are compared with."""
    return train(tmp_path_factory.mktemp("one"), assets, judge, devices=1, steps=2)
