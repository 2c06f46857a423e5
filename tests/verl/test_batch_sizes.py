"""Sizes on which verl would stop after a batch was judged are refused before anything starts."""

import copy
import re

import pytest
from omegaconf import OmegaConf

from zerowait.errors import ConfigError
from zerowait.verl.batch_sizes import data_parallel_ranks, unfit_size
from zerowait.verl.launch.command import compose_arguments, setup_of
from zerowait.verl.launch.composed_config import check_overrides, compose_config
from zerowait.verl.launch.recipe import load_recipe

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
REF = "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"
BY_ROWS = {
    f"{ACTOR}.use_dynamic_bsz": False,
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": 4,
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": 8,
}
FITTING = {
    "data.train_batch_size": 8,
    "data.max_prompt_length": 32,
    "data.max_response_length": 16,
    "algorithm.adv_estimator": "grpo",
    f"{ACTOR}.strategy": "fsdp2",
    f"{ACTOR}.ppo_mini_batch_size": 8,
    f"{ACTOR}.use_dynamic_bsz": True,
    f"{ROLLOUT}.n": 4,
    "trainer.n_gpus_per_node": 2,
}


@pytest.fixture(scope="module")
def verls():
    """verl's own configuration."""
    return compose_config([])


@pytest.fixture
def composed(verls):
    """The whole configuration with the sizes of a test."""

    def change(given):
        config = copy.deepcopy(verls)
        for key, value in (FITTING | given).items():
            OmegaConf.update(config, key, value)
        return config

    return change


@pytest.mark.parametrize(
    "given",
    [
        {},
        BY_ROWS,
        # verl fills a step of 32 rows up to two mini-batches of 20
        {f"{ACTOR}.ppo_mini_batch_size": 5},
        {f"{ACTOR}.ppo_max_token_len_per_gpu": 48},
        {f"{ROLLOUT}.n": 1},
        BY_ROWS | {f"{ACTOR}.use_kl_loss": True, REF: 16},
        {f"{ACTOR}.strategy": "megatron", f"{ACTOR}.ppo_mini_batch_size": 3},
    ],
)
def test_sizes_with_which_verl_trains_are_let_through(composed, given):
    assert unfit_size(composed(given)) is None


@pytest.mark.parametrize(
    ("given", "key", "problem"),
    [
        (
            {f"{ROLLOUT}.n": 1, f"{ACTOR}.ppo_mini_batch_size": 3},
            f"{ACTOR}.ppo_mini_batch_size",
            "is 3, and an update has 3 rows .* 2 devices .* write a multiple of 2",
        ),
        (
            BY_ROWS | {f"{ACTOR}.ppo_micro_batch_size_per_gpu": 3},
            f"{ACTOR}.ppo_micro_batch_size_per_gpu",
            "is 3, and does not divide the 16 rows .* in one update: write 2,",
        ),
        (
            BY_ROWS | {f"{ACTOR}.ppo_micro_batch_size_per_gpu": None},
            f"{ACTOR}.ppo_micro_batch_size_per_gpu",
            "is not set, and .* a divisor of 16",
        ),
        (
            BY_ROWS | {f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": 64},
            f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu",
            "is 64, and does not divide the 16 rows .* in one step: write 16,",
        ),
        (BY_ROWS | {f"{ACTOR}.use_kl_loss": True}, REF, "is not set"),
        (
            {f"{ROLLOUT}.log_prob_use_dynamic_bsz": False},
            f"{ROLLOUT}.log_prob_use_dynamic_bsz",
            "verl needs the same in both",
        ),
        (
            {f"{ACTOR}.ppo_max_token_len_per_gpu": 47},
            f"{ACTOR}.ppo_max_token_len_per_gpu",
            "is 47, and a row may have 48 tokens .* write 48 or more",
        ),
        (
            {"algorithm.adv_estimator": "grpo_passk", f"{ROLLOUT}.n": 1},
            f"{ROLLOUT}.n",
            "is 1, and the estimator grpo_passk needs at least 2",
        ),
    ],
)
def test_a_size_on_which_verl_would_stop_is_named_with_the_nearest_right_one(
    composed, given, key, problem
):
    found, why = unfit_size(composed(given))
    assert found == key
    assert re.search(problem, why), why


def test_sequence_parallel_devices_are_no_further_share(composed):
    given = {"trainer.n_gpus_per_node": 4, f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size": 2}
    assert data_parallel_ranks(composed(given)) == 2


RECIPE = """\
model: {path: nowhere}
data: {train: [a.parquet], validation: [b.parquet], batch: 3}
algorithm: {steps: 1}
rollout: {n: 1}
reward: {components: {answer: {scorer: qa_em}}}
resources: {device: cpu, devices: 2}
trainer: {mode: sync}
"""


def refusal(path, text):
    path.write_text(text)
    recipe = load_recipe(path)
    with pytest.raises(ConfigError) as caught:
        check_overrides(compose_arguments(recipe, setup_of(recipe, "cpu"), {}), {}, recipe)
    return str(caught.value)


def test_the_line_of_the_recipe_is_named(tmp_path):
    path = tmp_path / "recipe.yaml"
    assert refusal(path, RECIPE).startswith(f"{path}:2: data.batch is 3, and an update has 3 rows")
    own = f"{RECIPE}verl: {{{ACTOR}.ppo_mini_batch_size: 1}}\n"
    assert refusal(path, own).startswith(f"{path}:8: verl: {ACTOR}.ppo_mini_batch_size is 1,")
    loss = f"{RECIPE.replace('batch: 3', 'batch: 4')}verl: {{{ACTOR}.policy_loss.loss_mode: dro}}\n"
    assert f"verl: {ACTOR}.policy_loss.dro_beta is not set, and" in refusal(path, loss)
