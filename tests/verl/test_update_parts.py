"""Gradients before the last reward: where they may come, and that one update comes of them."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
import ray
import torch
from tensordict import NonTensorStack, TensorDict
from transformers import Qwen2Config, Qwen2ForCausalLM
from verl.protocol import DataProtoFuture

from zerowait.errors import ConfigError
from zerowait.types import Reward, Sample, Score
from zerowait.verl.early_gradients import needs_one_update, wants_early_gradients
from zerowait.verl.launch.command import compose_arguments, setup_of
from zerowait.verl.launch.composed_config import check_overrides, compose_config
from zerowait.verl.launch.recipe import load_recipe
from zerowait.verl.rewards.redeemer import Redeemer
from zerowait.verl.rewards.row_rewards import RowRewards
from zerowait.verl.rewards.tickets import ticket
from zerowait.verl.trainer.update_parts import UpdateParts

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
    """Also where steps in between stopped after their first part, as an abandoned one does."""
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


class Hub:
    """The other side of the wire: the reward of the first group is known, the other never is."""

    async def redeem(self, sample, *, of=None):
        if sample.group != "a":
            await asyncio.Event().wait()
        return Reward(1.0, {"answer": Score(1.0)})

    async def give_up(self, tickets):
        pass


class Workers:
    """Two training workers, of which one dies in its first part; the other one waits for it."""

    def __init__(self):
        self.parts = 0

        @ray.remote(num_cpus=0)
        class Worker:
            def dies(self):
                os._exit(1)

            def waits_in_a_collective(self):
                threading.Event().wait()

        self.actors = [Worker.remote(), Worker.remote()]

    def update_part(self, part):
        self.parts += 1
        dying, waiting = self.actors
        return DataProtoFuture.concat([waiting.waits_in_a_collective.remote(), dying.dies.remote()])


def two_rows(queue):
    """A step of two prompts with one response each, as verl's queue holds them."""
    for uid in ("a", "b"):
        sample = Sample("q", "a", id=uid, group=uid, group_size=1)
        columns = {
            "loss_mask": torch.nested.as_nested_tensor([torch.ones(3)], layout=torch.jagged),
            "extra_fields": NonTensorStack({"reward_extra_info": ticket(sample)}),
        }
        row = TensorDict(columns, batch_size=1)
        queue.put([f"{uid}_0_0"], "train", row, [{"status": "success", "seq_len": 3}])
    return queue.put(["a_0_0", "b_0_0"], "train")


@pytest.mark.timeout(900)
def test_a_worker_that_dies_in_a_part_ends_the_step_though_another_one_waits_for_it(
    queue, under_ray
):
    """As in verl's own update, whatever becomes of the rewards that are still missing."""

    async def hub():
        return Hub()

    one_update = {f"{ACTOR}.ppo_mini_batch_size": 2, f"{ACTOR}.use_dynamic_bsz": "true"}
    batch, config = two_rows(queue), composed(**one_update)
    with under_ray(), Redeemer(hub, on_timeout=lambda sample: None) as redeemer:
        rows = RowRewards(redeemer, redeem_s=600.0, max_abstained=1.0, quorum=0.0)
        rows.read("train", batch.keys)
        workers = Workers()
        parts = UpdateParts(workers, config, ranks=1, whole=batch)
        with pytest.raises(ray.exceptions.RayActorError):
            parts.send_while_waiting(rows, lambda part: part, redeem_s=600.0)
        assert workers.parts == 1
        with pytest.raises(ray.exceptions.RayActorError):
            parts.collect()
