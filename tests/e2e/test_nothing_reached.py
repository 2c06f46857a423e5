"""A training in which no judgement was ever reached stops, and says why in the provider's words."""

import json

import pytest
import yaml

from zerowait.testing import ErrorInBody, FakeJudge, Script

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
WORDS = "The model `fake` does not exist or you do not have access to it."


@pytest.mark.parametrize("mode", ["zerowait"])
def test_a_training_whose_judge_never_answers_ends_with_the_providers_words(
    tmp_path, assets, zerowait_command, mode
):
    with FakeJudge(Script(faults=(ErrorInBody(code=404, message=WORDS),))) as judge:
        reward = {
            "components": {"quality": {"judge": "q"}},
            "judges": {
                "q": {
                    "endpoints": [{"base_url": judge.url, "model": "fake"}],
                    "verdict": {"integer": [1, 10]},
                }
            },
            "traffic": {"concurrency": 8, "give_up_after": 20},
            "cache": "off",
            "on_failure": "neutral",
        }
        (tmp_path / "reward.yaml").write_text(json.dumps(reward))
        recipe = {
            "name": "e2e",
            "model": {"path": assets.model},
            "data": {
                "train": [assets.train],
                "validation": [assets.validation],
                "batch": 8,
                "max_prompt_tokens": 32,
                "max_response_tokens": 16,
            },
            "rollout": {"n": 4},
            "algorithm": {"steps": 2, "learning_rate": 1e-4, "micro_batch": 16},
            "reward": "reward.yaml",
            "trainer": {"mode": mode},
            "resources": {"device": "cpu", "devices": 1},
        }
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        done = zerowait_command("train", tmp_path / "recipe.yaml")
    assert done.code == 1
    assert "judgements all failed, and none was ever reached" in done.output
    assert WORDS in done.output
