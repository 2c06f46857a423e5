"""verl's own GRPO trainer on the CPU, with nothing of verl's replaced but what its registries offer.

The reward is verl's stock manager with a function of this file, so that what is tested is the
platform, the engines, the rollout and the data set.
"""

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from zerowait.verl.launch.launch_retry import run_with_retries
from zerowait.verl.launch.log import LOG
from zerowait.verl.launch.overrides import arguments, base_overrides, environment, merged_overrides
from zerowait.verl.launch.training_setup import TrainingSetup

HARD_LIMIT_S = 840
REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    stamp = (extra_info["split"], int(extra_info["group_size"]))
    assert stamp in {("train", 8), ("validation", 1)}, stamp
    right = solution_str.strip().startswith(f"<answer>{ground_truth}</answer>")
    return {"score": float(right), "acc": float(right)}
"""


def train(folder, assets, *, overrides=None, **more):
    """verl's own metrics of a finished run, one mapping per step, step 0 first."""
    (folder / "reward.py").write_text(REWARD)
    setup = TrainingSetup(
        model_path=assets.model,
        train_files=[assets.train],
        val_files=[assets.validation],
        responses=8,
        max_prompt_tokens=32,
        max_response_tokens=16,
        learning_rate=2e-3,
        micro_batch=64,
        folder=str(folder / "checkpoints"),
        logger=["console", "file"],
        seed=1,
        **more,
    )
    own = {
        "reward.custom_reward_function.path": str(folder / "reward.py"),
        "trainer.resume_mode": "disable",
        "hydra.run.dir": str(folder),
        "hydra.output_subdir": None,
    }
    composed = merged_overrides(base_overrides(setup), own | (overrides or {}))
    metrics = folder / "metrics.jsonl"
    log = run(folder, setup, composed, metrics)
    steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [step["step"] for step in steps] == list(range(setup.steps + 1)), log[-3000:]
    return SimpleNamespace(steps=[step["data"] for step in steps], log=log)


def run(folder, setup, composed, metrics):
    """What verl logged in a run that ended well."""
    output = folder / LOG
    code = run_with_retries(
        lambda: ended(output, setup, composed, metrics),
        folder=folder,
        has_begun=metrics.exists,
        tell=print,
    )
    text = output.read_text(errors="replace")
    assert code == 0, text[-6000:]
    return text


def ended(output, setup, composed, metrics):
    """The exit code of verl's own command."""
    with output.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "verl.trainer.main_ppo", *arguments(composed)],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ
            | environment(setup)
            | {"HF_HUB_OFFLINE": "1", "VERL_FILE_LOGGER_PATH": str(metrics)},
        )
        try:
            return process.wait(timeout=HARD_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            pytest.fail(f"not done after {HARD_LIMIT_S} s:\n{output.read_text()[-3000:]}")


def score(step):
    return step["critic/score/mean"]


def validation(step):
    (value,) = [step[key] for key in step if key.startswith("val-core/") and "/acc/mean" in key]
    return value


@pytest.mark.e2e
@pytest.mark.timeout(HARD_LIMIT_S + 300)
def test_a_tiny_policy_learns_on_one_logical_device(tmp_path, assets):
    """GRPO with a KL term: score and validation rise, and rollout and actor agree all along.

    From the second step on the agreement also says that the rollout follows the actor's updates.
    """
    overrides = {"actor_rollout_ref.actor.ppo_mini_batch_size": 8}
    done = train(tmp_path, assets, steps=8, prompts=16, kl_loss=0.001, overrides=overrides)
    first, last = done.steps[1:4], done.steps[-3:]
    assert sum(map(score, last)) / 3 > sum(map(score, first)) / 3 + 0.15
    assert validation(done.steps[-1]) > validation(done.steps[0])
    for step in done.steps[1:]:
        assert step["training/rollout_probs_diff_max"] < 1e-3
        assert step["training/rollout_actor_probs_pearson_corr"] > 0.999
        assert step["actor/kl_loss"] >= 0
