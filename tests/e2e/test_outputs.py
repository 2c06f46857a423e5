"""Trajectories of several outputs, and rollouts that fail, through verl on Ray."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from zerowait.types import Score

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
LOOPS = Path(__file__).parent / "watching"
LAST_TOKENS = 5
DEADLINE_S = 600
"""How long siblings are waited for: longer than a run may take."""
FAILING = {"sync": None, "zerowait": 3}
"""The session whose rollout fails; under verl's own trainers its siblings would wait for it."""


@pytest.fixture(scope="module", params=["sync", "zerowait"])
def done(request, tmp_path_factory, assets, judge, recipes):
    mode = request.param
    folder = tmp_path_factory.mktemp(f"outputs-{mode}")
    loops = folder / "loops.yaml"
    loops.write_text(
        json.dumps(
            [{"name": "two", "_target_": "two_outputs.TwoOutputs", "failing": FAILING[mode]}]
        )
    )
    endpoint = {"base_url": judge.url, "model": "fake"}
    reward = {
        "components": {
            "answer": {"scorer": "qa_em"},
            "quality": {"judge": "q", "weight": 0.02},
            "length": {"shape": "median_band", "scale": 0.1},
        },
        "judges": {"q": {"endpoints": [endpoint], "verdict": {"integer": [1, 10]}}},
        "traffic": {"group_deadline_s": DEADLINE_S},
        "cache": "off",
        "on_failure": "neutral",
    }
    (folder / "reward.yaml").write_text(json.dumps(reward))
    agent = "actor_rollout_ref.rollout.agent"
    recipe = {
        "name": "outputs",
        "seed": 3,
        "model": {"path": assets.model},
        "data": {
            "train": [assets.train],
            "validation": [assets.validation],
            "batch": 4,
            "max_prompt_tokens": 32,
            "max_response_tokens": 16,
        },
        "rollout": {"n": 4},
        "algorithm": {"steps": 2, "learning_rate": 1e-4, "micro_batch": 16},
        "reward": "reward.yaml",
        "trainer": {"mode": mode, **({"max_abstained": 1} if mode == "zerowait" else {})},
        "resources": {"device": "cpu", "devices": 1},
        "schedule": {"logger": ["console", "file"]},
        "verl": {
            f"{agent}.agent_loop_config_path": str(loops),
            f"{agent}.default_agent_loop": "two",
        },
    }
    known = filter(None, [str(LOOPS), os.environ.get("PYTHONPATH")])
    made = recipes(folder, recipe, PYTHONPATH=os.pathsep.join(known))
    made.mode = mode
    return made


def outputs(folder):
    """Every output that verl dumped, by its key ``{uid}_{session}_{index}``."""
    lines = [line for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
    return {row["uid"]: row for row in map(json.loads, lines)}


@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_trajectorys_last_output_is_judged_and_all_its_outputs_share_the_reward(done, split):
    dumped = outputs(done.run / ("rollouts" if split == "train" else "validation"))
    records = [record for record in done.records if record.sample.split == split]
    longer = 0
    for record in records:
        first, last = (dumped[f"{record.sample.id}_{index}"] for index in (0, 1))
        assert record.sample.response == last["output"]
        assert 0 < record.sample.response_tokens <= LAST_TOKENS
        assert first["score"] == last["score"]
        if record.reward.value is not None:
            assert last["score"] == pytest.approx(record.reward.value, abs=1e-6)
        longer += len(first["output"]) > len(last["output"])
    assert longer > len(records) / 2  # of those the last one was cut


def test_a_group_is_shaped_without_the_sibling_whose_rollout_failed(done):
    trained = [record for record in done.records if record.sample.split == "train"]
    here = 4 if FAILING[done.mode] is None else 3
    assert set(Counter(record.sample.group for record in trained).values()) == {here}
    assert all(isinstance(record.reward.components["length"], Score) for record in trained)
