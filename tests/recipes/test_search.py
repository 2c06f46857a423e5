"""The search recipes: what they compose for verl, and what the run's table is made of."""

import importlib.util
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import verl  # noqa: F401

from zerowait.types import Reward
from zerowait.verl.launch import composed_config as verl_config
from zerowait.verl.launch.command import compose_arguments, setup_of
from zerowait.verl.launch.recipe import load_recipe

RECIPES = Path(__file__).parents[2] / "recipes" / "search"


def composed(name, device, tmp_path):
    recipe = load_recipe(RECIPES / name, output=tmp_path)
    return verl_config.compose_config(compose_arguments(recipe, setup_of(recipe, device), {}))


@pytest.mark.parametrize(("name", "device"), [("recipe.yaml", "cpu"), ("gpu.yaml", "cuda")])
def test_a_recipe_composes_to_a_configuration_of_verl_with_the_search_agent(name, device, tmp_path):
    config = composed(name, device, tmp_path)
    assert config.actor_rollout_ref.rollout.agent.default_agent_loop == "search"
    assert config.trainer.v1.trainer_mode == "zerowait"
    assert config.reward.reward_manager.name == "zerowait"


def test_the_variant_for_gpus_has_the_published_settings(tmp_path):
    config = composed("gpu.yaml", "cuda", tmp_path)
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert config.algorithm.adv_estimator == "grpo"
    assert (config.data.train_batch_size, rollout.n, rollout.temperature) == (512, 5, 1.0)
    assert (actor.use_kl_loss, actor.kl_loss_coef, actor.kl_loss_type) == (
        True,
        0.001,
        "low_var_kl",
    )
    assert (actor.optim.lr, actor.optim.lr_warmup_steps_ratio) == (1e-6, 0.285)
    assert config.trainer.total_training_steps == 1005
    search = config.search
    assert (search.max_turns, search.max_turn_length, search.max_obs_length) == (2, 500, 500)
    assert (search.retriever.url, search.retriever.topk) == ("http://127.0.0.1:8000/retrieve", 3)
    assert config.data.max_prompt_length == 2048
    # three turns of the model and two observations
    assert config.data.max_response_length == 3 * 500 + 2 * 500


def test_the_table_counts_episodes_that_search_and_leaves_out_rewards_that_abstained():
    spec = importlib.util.spec_from_file_location("search_run", RECIPES / "run.py")
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)

    def record(searches, value, failed=0):
        episode = {"searches": searches, "failed_searches": failed}
        return SimpleNamespace(
            sample=SimpleNamespace(extra={"episode": episode}),
            reward=Reward(value=value, components={}, metrics={}),
        )

    records = [record(1, 1.0), record(0, 0.0), record(2, None, failed=1), record(0, 0.0)]
    assert run.figures(records) == ("4", "50%", "0.33", "1")
