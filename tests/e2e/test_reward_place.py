"""The PPO recipe on the CPU: what the record says each row earned is what verl's tensors give it.

What it earns where the environment wrote some of the tokens is in ``test_search.py``.
"""

import json
import os
from pathlib import Path

import pytest
import yaml

from zerowait.testing import FakeJudge, Latency, Script

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]
RECIPES = Path(__file__).parents[2] / "recipes"
WATCHING = Path(__file__).parent / "watching"


def test_ppo_trains_on_what_the_record_says(tmp_path, assets, recipes):
    """The recipe as it is, for one step: the policy is its own reference then, so that KL is 0."""
    seen = tmp_path / "gae.jsonl"
    recipe = yaml.safe_load((RECIPES / "ppo" / "recipe.yaml").read_text())
    recipe["reward"] = yaml.safe_load((RECIPES / "tiny" / "reward.yaml").read_text())
    recipe["model"] = {"path": assets.model}
    recipe["data"] |= {"train": [assets.train], "validation": [assets.validation]}
    recipe["algorithm"] |= {"steps": 1}
    recipe["schedule"] = {"logger": ["console", "file"]}
    with FakeJudge(Script(latency=Latency(median_s=0.05))) as judge:
        (asked,) = recipe["reward"]["judges"].values()
        asked["endpoints"] = [{"base_url": judge.url, "model": "fake"}]
        done = recipes(
            tmp_path,
            recipe,
            VERL_USE_EXTERNAL_MODULES="zerowait.verl.plugin,watched_gae",
            WATCHED_GAE=str(seen),
            PYTHONPATH=os.pathsep.join([str(WATCHING), os.environ.get("PYTHONPATH", "")]),
        )
    rows = [json.loads(line) for line in seen.read_text().splitlines()]
    recorded = sorted(r.reward.value for r in done.records if r.sample.split == "train")
    given = sorted(
        sum(x for x, bit in zip(row["rewards"], row["mask"], strict=True) if bit) for row in rows
    )
    assert given == pytest.approx(recorded, abs=1e-3)
    waits = [json.loads(line) for line in (done.run / "waits.jsonl").read_text().splitlines()]
    assert [row["step"] for row in waits] == [1]
    assert waits[0]["exposed_s"] == pytest.approx(done.steps[1]["reward/exposed_reward_s"])
