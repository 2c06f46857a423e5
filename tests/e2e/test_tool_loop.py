"""An agent loop of the user's own under verl's own trainer: what its tool wrote earns nothing."""

import json
import os
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
LOOPS = Path(__file__).parent / "watching"
MODEL_TOKENS = 4


@pytest.fixture(scope="module")
def done(tmp_path_factory, assets, recipes):
    folder = tmp_path_factory.mktemp("tool")
    loops = folder / "loops.yaml"
    loops.write_text(json.dumps([{"name": "tool", "_target_": "tool_loop.ToolLoop"}]))
    agent = "actor_rollout_ref.rollout.agent"
    recipe = {
        "name": "tool",
        "model": {"path": assets.model},
        "data": {
            "train": [assets.train],
            "validation": [assets.validation],
            "batch": 4,
            "max_prompt_tokens": 32,
            "max_response_tokens": 32,
        },
        "rollout": {"n": 2},
        "algorithm": {"steps": 1, "micro_batch": 16, "estimator": "reinforce_plus_plus"},
        "reward": {"components": {"answer": {"scorer": "qa_em"}}},
        "resources": {"device": "cpu"},
        "schedule": {"logger": ["console", "file"]},
        "verl": {
            f"{agent}.agent_loop_config_path": str(loops),
            f"{agent}.default_agent_loop": "tool",
        },
    }
    known = filter(None, [str(LOOPS), os.environ.get("PYTHONPATH")])
    return recipes(folder, recipe, PYTHONPATH=os.pathsep.join(known))


def test_the_answer_that_only_the_tool_wrote_earns_nothing(done):
    assert len(done.records) > 8
    for record in done.records:
        assert "</answer>" in record.sample.extra["transcript"]
        assert "</answer>" not in record.sample.response
        assert record.sample.response_tokens <= MODEL_TOKENS
        assert record.reward.value == 0.0


def test_verl_was_given_the_same(done):
    assert {row["score"] for row in [*done.dumped.values(), *done.validated.values()]} == {0.0}
