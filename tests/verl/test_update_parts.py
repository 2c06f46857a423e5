"""Gradients before the last reward: where they may come, and that one update comes of them."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from zerowait.errors import ConfigError
from zerowait.verl.early_gradients import needs_one_update, wants_early_gradients
from zerowait.verl.launch.command import compose_arguments, setup_of
from zerowait.verl.launch.composed_config import check_overrides, compose_config
from zerowait.verl.launch.recipe import load_recipe

ACTOR = "actor_rollout_ref.actor"
FOLDER = Path(__file__).parent


def composed(**overrides):
    given = {
        "data.train_batch_size": 8,
        f"{ACTOR}.ppo_mini_batch_size": 8,
        f"{ACTOR}.strategy": "fsdp2",
        "algorithm.adv_estimator": "grpo",
        "trainer.v1.trainer_mode": "zerowait",
    }
    return compose_config([f"{key}={value}" for key, value in (given | overrides).items()])


def test_verls_defaults_with_grpo_allow_it():
    assert wants_early_gradients(composed(), "on") == (True, None)
    assert wants_early_gradients(composed(), "off") == (False, None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("algorithm.adv_estimator", "gae"),
        ("algorithm.adv_estimator", "reinforce_plus_plus_baseline"),
        ("algorithm.adv_estimator", "my_own"),
        ("critic.enable", "true"),
        (f"{ACTOR}.ppo_mini_batch_size", 4),
        (f"{ACTOR}.ppo_mini_batch_size", 16),
        (f"{ACTOR}.ppo_epochs", 2),
        (f"{ACTOR}.strategy", "megatron"),
        (f"{ACTOR}.strategy", "fsdp"),
        (f"{ACTOR}.policy_loss.loss_mode", "geo_mean"),
        (f"{ACTOR}.policy_loss.loss_mode", "kl_cov"),
        (f"{ACTOR}.loss_agg_mode", "seq-mean-token-sum-norm"),
        (f"{ACTOR}.fsdp_config.param_offload", "true"),
        ("algorithm.rollout_correction.rollout_rs", "token_k1"),
        ("algorithm.rollout_correction.bypass_mode", "true"),
        # divides by rows, though the other terms of the default token-mean divide by tokens
        (f"{ACTOR}.policy_loss.loss_mode", "sapo"),
        ("trainer.critic_warmup", 3),
    ],
)
def test_where_parts_would_not_add_up_there_is_one_update_and_on_is_an_error_that_says_why(
    key, value
):
    config = composed(**{key: value})
    early, why = wants_early_gradients(config, "auto")
    assert not early
    assert key in why
    with pytest.raises(ConfigError, match=key):
        wants_early_gradients(config, "on")


def test_sapo_in_seq_mean_allows_it():
    sapo = {
        f"{ACTOR}.policy_loss.loss_mode": "sapo",
        f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean",
    }
    assert needs_one_update(composed(**sapo)) is None


@pytest.mark.parametrize(
    ("prompts", "micro", "allowed"), [(8, 4, True), (8, 32, False), (1, 1, False), (2, 4, True)]
)
def test_where_no_part_could_fill_the_passes_of_every_device_there_is_one_update(
    prompts, micro, allowed
):
    sizes = {
        "data.train_batch_size": prompts,
        f"{ACTOR}.ppo_mini_batch_size": prompts,
        "actor_rollout_ref.rollout.n": 4,
        "trainer.n_gpus_per_node": 1,
        f"{ACTOR}.use_dynamic_bsz": "false",
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": micro,
    }
    why = needs_one_update(composed(**sizes))
    assert why is None if allowed else "no part of it" in why


@pytest.mark.parametrize("engine", ["dp", "megatron", "torchtitan", "veomni"])
def test_the_engines_of_verl_are_told_apart(engine):
    config = compose_config([f"model_engine={engine}", "algorithm.adv_estimator=grpo"])
    assert needs_one_update(config)  # verl's own default has several updates in a step
    one = composed_with(engine)
    assert f"{ACTOR}.strategy" in needs_one_update(one)


def composed_with(engine):
    """One update in a step, with an engine's own defaults."""
    return compose_config(
        [
            f"model_engine={engine}",
            "algorithm.adv_estimator=grpo",
            "data.train_batch_size=8",
            f"{ACTOR}.ppo_mini_batch_size=8",
        ]
    )


def test_on_is_refused_before_anything_starts_with_the_line_of_the_recipe(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE)
    recipe = load_recipe(path)
    command = compose_arguments(recipe, setup_of(recipe, "cpu"), {})
    with pytest.raises(ConfigError) as caught:
        check_overrides(command, {}, recipe)
    assert str(caught.value).startswith(f"{path}:7: trainer.early_gradients is on, and ")
    assert "actor.ppo_epochs=2 updates several times in a step" in str(caught.value)


def test_on_is_refused_in_a_command_of_verls_own():
    given = {
        "algorithm.adv_estimator": "gae",
        "trainer.v1.trainer_mode": "zerowait",
        "+reward.zerowait.early_gradients": "on",
    }
    command = [f"{key}={value}" for key, value in given.items()]
    with pytest.raises(ConfigError, match=r"reward\.zerowait\.early_gradients is on, and .*gae"):
        check_overrides(command, given)


RECIPE = """\
model: {path: nowhere}
data: {train: [a.parquet], validation: [b.parquet], batch: 8}
algorithm: {steps: 1}
reward: {components: {answer: {scorer: qa_em}}}
verl:
  actor_rollout_ref.actor.ppo_epochs: 2
trainer: {mode: zerowait, early_gradients: on}
"""


def test_an_adaptive_penalty_in_the_reward_needs_one_update():
    config = composed(
        **{"algorithm.use_kl_in_reward": "true", "algorithm.kl_ctrl.type": "adaptive"}
    )
    assert "algorithm.kl_ctrl.type=adaptive" in needs_one_update(config)


@pytest.fixture(scope="module")
def engine_runs(tmp_path_factory, hold_port):
    """What two ranks with verl's own engine print, by case."""
    folder = tmp_path_factory.mktemp("policy")
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 64}
    config = Qwen2Config(num_attention_heads=2, num_key_value_heads=1, **shape)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    with hold_port() as port, ExitStack() as ends:
        ranks = [a_rank(rank, port, folder) for rank in range(2)]
        for process in ranks:
            ends.enter_context(process)
            ends.callback(process.kill)
        outputs = [process.communicate(timeout=840) for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], outputs[0][1][-3000:]
    lines = [line for line in outputs[0][0].splitlines() if line.startswith('{"case"')]
    return {found["case"]: found for found in map(json.loads, lines)}


def a_rank(rank, port, folder):
    """A process that trains as one rank of two."""
    process_group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    worker = {"LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "RANK": str(rank), "WG_BACKEND": "ray"}
    cores = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "VERL_PLATFORM": "cpu"}
    return subprocess.Popen(
        [sys.executable, str(FOLDER / "update_in_parts.py"), str(folder)],
        env=os.environ | process_group | worker | cores,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


CASES = (
    "token-mean, kl, entropy",
    "seq-mean-token-mean, kl, sapo",
    "token-mean, rows per micro-batch, warm-up, gspo",
)
PACKED = ("actor/pg_clipfrac", "actor/ppo_kl", "actor/pg_clipfrac_lower")
MEASURED = ("mfu", "perf/")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", CASES)
def test_parameters_after_five_steps_in_parts_are_those_of_five_updates_but_for_rounding(
    engine_runs, case
):
    found = engine_runs[case]
    assert found["moved"] > 1e-3
    assert found["apart"] < 1e-4


@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", CASES)
def test_metrics_of_an_update_in_parts_are_those_of_one(engine_runs, case):
    """Apart from means over micro-batches, which are packed otherwise."""
    ours, verls = engine_runs[case]["told"]
    for step, expected in zip(ours, verls, strict=True):
        assert step.keys() == expected.keys()
        same = [name for name in step if not name.startswith((*PACKED, *MEASURED))]
        assert {name: step[name] for name in same} == pytest.approx(
            {name: expected[name] for name in same}, rel=1e-3, abs=1e-6
        )
