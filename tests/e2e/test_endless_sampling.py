"""Rewards that never differ under ``filter_groups``, which verl would sample for ever."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
TRAIN = [sys.executable, "-c", "from zerowait.cli import main; main()", "train"]
ENVIRONMENT = os.environ | {"OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}


@pytest.mark.parametrize("mode", ["zerowait", "sync"])
def test_a_training_whose_groups_never_differ_is_told_of_and_stopped(tmp_path, assets, mode):
    recipe = {
        "name": "endless",
        "model": {"path": assets.model},
        "data": {
            "train": [assets.train],
            "validation": [assets.validation],
            "batch": 4,
            "max_prompt_tokens": 32,
            "max_response_tokens": 8,
        },
        "rollout": {"n": 2},
        "algorithm": {"steps": 2, "micro_batch": 16},
        "reward": {"components": {"said": {"scorer": "regex", "pattern": "(?s).*"}}},
        "trainer": {"mode": mode, "max_sampled_batches": 3},
        "resources": {"device": "cpu"},
        "verl": {"algorithm.filter_groups.enable": True},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    run = tmp_path / "run"
    done = subprocess.run(
        [*TRAIN, tmp_path / "recipe.yaml", "--output", run],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=ENVIRONMENT,
    )
    assert done.returncode == 1, done.stderr[-3000:]
    assert "zerowait: a whole batch was sampled in vain" in done.stderr
    assert "3 batches were sampled for one step" in (run / "train.log").read_text()
    rewards = (run / "rewards.jsonl").read_text().splitlines()
    assert len(rewards) < 100  # each batch has 8
