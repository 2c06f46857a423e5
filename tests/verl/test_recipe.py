import json

import pytest

from zerowait.errors import ConfigError
from zerowait.verl.estimators import ESTIMATORS
from zerowait.verl.launch.command import refuse_ineffective_overrides
from zerowait.verl.launch.recipe import load_recipe
from zerowait.verl.launch.verl_names import LOGGERS

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
        ("algorithm", "estimator", "remax", "take rloo, the nearest that it runs"),
        ("algorithm", "estimator", "gdpo", "because it needs each component's own rewards"),
        ("rollout", "n", 0, "must be at least 1"),
        ("rollout", "temperature", -1, "must not be negative"),
        ("resources", "devices", 0, "must be at least 1"),
        ("resources", "nodes", 0, "must be at least 1"),
        ("resources", "reward_workers", 0, "must be at least 1"),
        ("resources", "rollout_devices", 0, "must be at least 1"),
        (
            "resources",
            "rollout_devices",
            2,
            "is read with trainer: {mode: zerowait_separate_async}",
        ),
        ("resources", "rollout_nodes", 2, "or separate_async only, where rollouts have devices"),
        ("resources", "weight_transfer", "gloo", "of their own"),
        ("trainer", "updates_per_sync", 2, "is read in separate_async and zerowait_separate_async"),
        ("trainer", "early_gradients", "on", "is read in zerowait only"),
        ("schedule", "save_every", -1, "must be at least 0"),
        ("schedule", "logger", ["console", "tensorbord"], "did you mean 'tensorboard'?"),
        ("algorithm", "steps", 10**15, "must be at most 1e+09"),
        ("data", "max_response_tokens", 10**12, "must be at most 1e+09"),
        ("data", "prompt_key", "t\0", "holds the character U+0000, which no text has"),
        ("model", "path", "\ud800", "holds the character U+D800, which no text has"),
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


def test_a_steps_prompts_are_shared_out_evenly_among_its_updates(tmp_path):
    path = written(tmp_path, "trainer", {"mode": "separate_async", "updates_per_sync": 4})
    with pytest.raises(
        ConfigError, match=r"updates_per_sync is 4, which does not divide data\.batch"
    ):
        load_recipe(path)


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "..", ".x", "a/b", "a\nb", "x" * 61])
def test_a_runs_name_is_one_folder_and_no_way_out_of_it(tmp_path, name):
    with pytest.raises(ConfigError, match=r"name is .* has to be the name of one folder"):
        load_recipe(written(tmp_path, "name", name))


def test_the_folders_name_is_the_runs_unless_it_says_another(tmp_path):
    assert load_recipe(written(tmp_path, "seed", 1)).name == tmp_path.name
    assert load_recipe(written(tmp_path, "name", "Größe 7.1")).name == "Größe 7.1"


def test_the_names_that_are_accepted_are_verls_own():
    from verl.trainer.ppo.core_algos import AdvantageEstimator
    from verl.utils.tracking import Tracking

    assert set(ESTIMATORS) == {estimator.value for estimator in AdvantageEstimator}
    assert set(LOGGERS) == set(Tracking.supported_backend)


@pytest.mark.parametrize("top_p", [float("nan"), "nan", "NaN"])
def test_a_nan_is_no_value_for_verl(tmp_path, top_p):
    recipe = load_recipe(written(tmp_path, "verl", {"actor_rollout_ref.rollout": {"top_p": top_p}}))
    with pytest.raises(ConfigError, match=r"actor_rollout_ref\.rollout\.top_p must be a number"):
        refuse_ineffective_overrides(recipe, {})
    with pytest.raises(ConfigError, match=r"algorithm\.gamma must be a number, not nan"):
        refuse_ineffective_overrides(
            load_recipe(written(tmp_path, "seed", 1)), {"algorithm.gamma": "nan"}
        )


@pytest.mark.parametrize(
    "twice",
    [
        {"data.seed": 1, "+data.seed": 2},
        {"data": {"seed": 1}, "data.seed": 2},
        {"data": "{seed: 1}", "++data.seed": 2},
    ],
)
def test_a_value_that_is_given_in_two_spellings_is_refused(tmp_path, twice):
    recipe = load_recipe(written(tmp_path, "verl", twice))
    with pytest.raises(ConfigError, match=r"seed sets what '.*' has set already"):
        refuse_ineffective_overrides(recipe, {})


@pytest.mark.parametrize("seed", [-1, 2**32, "x", True])
def test_a_seed_is_one_that_every_generator_takes(tmp_path, seed):
    with pytest.raises(ConfigError, match="seed must be a whole number from 0 to 4294967295"):
        load_recipe(written(tmp_path, "seed", seed))


def test_a_seed_on_the_command_line_is_checked_likewise(tmp_path):
    with pytest.raises(ConfigError, match=r"--seed -1: must be a whole number"):
        load_recipe(written(tmp_path, "seed", 1), seed=-1)
