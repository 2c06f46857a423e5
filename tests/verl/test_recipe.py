import json

import pytest

from zerowait.errors import ConfigError
from zerowait.verl.recipe import load_recipe

RECIPE = {
    "model": {"path": "model"},
    "data": {"train": ["t.jsonl"], "validation": ["v.jsonl"], "batch": 2},
    "algorithm": {"steps": 1},
    "rollout": {"n": 2},
    "resources": {"devices": 1},
    "reward": {"components": {"answer": {"scorer": "qa_em"}}},
}


def written(tmp_path, section, changes):
    path = tmp_path / "recipe.yaml"
    old = RECIPE.get(section)
    changed = {**old, **changes} if isinstance(old, dict) else changes
    path.write_text(json.dumps(RECIPE | {section: changed}, indent=1))
    return path


@pytest.mark.parametrize(
    ("section", "key", "value", "says"),
    [
        ("data", "batch", 0, "must be at least 1, not 0"),
        ("data", "max_prompt_tokens", 0, "must be at least 1"),
        ("data", "max_response_tokens", -1, "must be at least 1"),
        ("data", "train", [], "must name at least one file"),
        ("data", "validation", [], "must name at least one file"),
        ("algorithm", "steps", 0, "must be at least 1"),
        ("algorithm", "learning_rate", 0, "must be greater than 0"),
        ("algorithm", "learning_rate", float("inf"), "must be"),
        ("algorithm", "kl_loss", -0.1, "must not be negative"),
        ("algorithm", "micro_batch", 0, "must be at least 1"),
        ("algorithm", "estimator", "grop", "did you mean 'grpo'?"),
        ("rollout", "n", 0, "must be at least 1"),
        ("rollout", "temperature", -1, "must not be negative"),
        ("resources", "devices", 0, "must be at least 1"),
        ("resources", "nodes", 0, "must be at least 1"),
        ("resources", "reward_workers", 0, "must be at least 1"),
        ("schedule", "save_every", -1, "must be at least 0"),
    ],
)
def test_a_number_that_cannot_be_is_named_with_file_line_and_key(
    tmp_path, section, key, value, says
):
    path = written(tmp_path, section, {key: value})
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if f'"{key}"' in text)
    with pytest.raises(ConfigError) as caught:
        load_recipe(path)
    assert str(caught.value).startswith(f"{path}:{line}: {section}.{key} ")
    assert says in str(caught.value)


@pytest.mark.parametrize("seed", [-1, 2**32, "x", True])
def test_a_seed_is_one_that_every_generator_takes(tmp_path, seed):
    with pytest.raises(ConfigError, match="seed must be a whole number from 0 to 4294967295"):
        load_recipe(written(tmp_path, "seed", seed))


def test_a_seed_on_the_command_line_is_checked_likewise(tmp_path):
    with pytest.raises(ConfigError, match=r"--seed -1: must be a whole number"):
        load_recipe(written(tmp_path, "seed", 1), seed=-1)
