import importlib
import json
from pathlib import Path

import pytest
import verl
from hydra import compose, initialize_config_dir

from zerowait.errors import ConfigError
from zerowait.verl.launch.command import compose_arguments, setup_of
from zerowait.verl.launch.overrides import arguments, base_overrides, environment, merged_overrides
from zerowait.verl.launch.recipe import load_recipe
from zerowait.verl.launch.training_setup import TrainingSetup

CONFIG = str(Path(verl.__file__).parent / "trainer" / "config")


def setup(**more):
    files = {"model_path": "m/o d", "train_files": ["a b.jsonl"], "val_files": ["c.jsonl"]}
    return TrainingSetup(**(files | more))


def composed(overrides):
    """verl's whole configuration; an unknown key without + is an error there."""
    with initialize_config_dir(config_dir=CONFIG, version_base=None):
        return compose("ppo_trainer", overrides=arguments(overrides))


def test_verl_knows_every_key_for_the_cpu():
    config = composed(base_overrides(setup(devices=2, responses=3, kl_loss=0.1)))
    assert config.trainer.device == "cpu"
    assert config.ray_kwargs.ray_init.num_gpus == config.trainer.n_gpus_per_node == 2
    assert config.actor_rollout_ref.rollout.name == "transformers"
    assert config.actor_rollout_ref.rollout.dtype == "float32"
    assert config.actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype == "fp32"
    assert config.actor_rollout_ref.ref.strategy == "fsdp2"
    assert config.actor_rollout_ref.actor.use_kl_loss is True
    assert config.actor_rollout_ref.rollout.log_prob_use_dynamic_bsz is True
    assert config.actor_rollout_ref.ref.log_prob_max_token_len_per_gpu == 8 * 1024
    assert list(config.data.train_files) == ["a b.jsonl"]
    assert config.actor_rollout_ref.model.path == "m/o d"


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_verl_knows_every_key_for_a_gpu(engine):
    config = composed(base_overrides(setup(device="cuda", engine=engine)))
    assert config.actor_rollout_ref.rollout.name == engine
    assert config.actor_rollout_ref.rollout.dtype == "bfloat16"
    assert config.actor_rollout_ref.actor.fsdp_config.get("mixed_precision") is None
    assert "num_gpus" not in config.ray_kwargs.ray_init


def test_a_cluster_is_joined_and_its_processes_learn_the_platform():
    config = composed(base_overrides(setup(ray_address="auto")))
    assert config.ray_kwargs.ray_init.address == "auto"
    assert config.ray_kwargs.ray_init.num_cpus is None
    assert config.ray_kwargs.ray_init.runtime_env.env_vars.VERL_PLATFORM == "cpu"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_without_an_address_a_cluster_that_runs_on_this_host_is_not_joined(device, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    config = composed(base_overrides(setup(device=device)))
    assert config.ray_kwargs.ray_init.address == "local"


def separate_recipe(tmp_path, *, resources=(), **parts):
    path = tmp_path / "recipe.yaml"
    recipe = {
        "model": {"path": "m"},
        "data": {"train": ["t"], "validation": ["v"], "batch": 8},
        "algorithm": {"steps": 3},
        "trainer": {"mode": "zerowait_separate_async"},
        "reward": {"components": {"answer": {"scorer": "qa_em"}}},
        "resources": dict(resources),
    }
    path.write_text(json.dumps(recipe | parts))
    return load_recipe(path)


def separate(recipe, device):
    command = compose_arguments(recipe, setup_of(recipe, device), {})
    with initialize_config_dir(config_dir=CONFIG, version_base=None):
        return compose("ppo_trainer", overrides=command)


@pytest.mark.parametrize("mode", ["separate_async", "zerowait_separate_async"])
def test_rollouts_on_the_cpu_get_a_logical_device_of_their_own_and_weights_over_gloo(
    tmp_path, mode
):
    config = separate(separate_recipe(tmp_path, trainer={"mode": mode}), "cpu")
    rollout = config.actor_rollout_ref.rollout
    assert (rollout.n_gpus_per_node, rollout.nnodes) == (1, 1)
    assert config.trainer.n_gpus_per_node == 1
    assert config.ray_kwargs.ray_init.num_gpus == 2
    assert rollout.checkpoint_engine.backend == "gloo"
    registers = rollout.checkpoint_engine.custom_backend_module
    assert importlib.import_module(registers).CHECKPOINT_BACKEND == "gloo"
    assert config.trainer.v1.separate_async.parameter_sync_step == 1
    assert config.actor_rollout_ref.actor.ppo_mini_batch_size == config.data.train_batch_size


def test_a_step_of_several_updates_has_as_many_prompts_as_verl_asks_for(tmp_path):
    recipe = separate_recipe(
        tmp_path,
        trainer={"mode": "separate_async", "updates_per_sync": 4},
        resources={"rollout_devices": 6, "rollout_nodes": 2, "devices": 8},
    )
    config = separate(recipe, "cuda")
    rollout = config.actor_rollout_ref.rollout
    assert (rollout.n_gpus_per_node, rollout.nnodes) == (6, 2)
    updates = config.trainer.v1.separate_async.parameter_sync_step
    assert updates == 4
    mini = config.actor_rollout_ref.actor.ppo_mini_batch_size
    assert config.data.train_batch_size == updates * mini == 8


@pytest.mark.parametrize(
    ("engine", "chosen", "backend"),
    [
        ("transformers", "auto", "gloo"),
        ("vllm", "auto", "nccl"),
        ("transformers", "nccl", "nccl"),
        ("vllm", "gloo", "gloo"),
    ],
)
def test_weights_go_over_nccl_where_a_fast_engine_rolls_out_or_it_is_chosen(
    tmp_path, engine, chosen, backend
):
    recipe = separate_recipe(
        tmp_path, rollout={"engine": engine}, resources={"weight_transfer": chosen}
    )
    transfer = separate(recipe, "cuda").actor_rollout_ref.rollout.checkpoint_engine
    assert transfer.backend == backend
    assert (transfer.custom_backend_module is None) == (backend == "nccl")


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"resources": {"weight_transfer": "nccl"}}, "is nccl, which needs a GPU.*write gloo"),
        (
            {"trainer": {"mode": "separate_async", "updates_per_sync": 2}},
            "updates_per_sync must be 1 on the CPU",
        ),
    ],
)
def test_what_verl_cannot_do_on_a_cpu_is_refused(tmp_path, parts, says):
    with pytest.raises(ConfigError, match=says):
        setup_of(separate_recipe(tmp_path, **parts), "cpu")


def test_validation_comes_before_the_first_step_and_after_the_last_one():
    config = composed(base_overrides(setup(steps=7)))
    assert config.trainer.val_before_train is True
    assert config.trainer.test_freq == config.trainer.total_training_steps == 7
    assert composed(base_overrides(setup(steps=7, validate_every=2))).trainer.test_freq == 2


def test_a_critic_is_configured_like_the_policy_where_verl_can_load_one():
    more = {"estimator": "gae", "flash_attention": True}
    config = composed(base_overrides(setup(device="cuda", **more)))
    assert config.critic.strategy == "fsdp2"
    assert config.critic.model.path == "m/o d"
    with pytest.raises(ConfigError, match="flash-attn"):
        base_overrides(setup(estimator="gae", device="cuda"))


def test_a_critic_on_the_cpu_needs_no_package():
    config = composed(base_overrides(setup(estimator="gae")))
    assert config.critic.fsdp.mixed_precision.param_dtype == "fp32"
    assert config.critic.model.override_config.attn_implementation == "sdpa"


def test_verl_knows_every_key_for_megatron():
    more = {"device": "cuda", "engine": "vllm", "kl_loss": 0.1, "estimator": "gae"}
    config = composed(base_overrides(setup(backend="megatron", **more)))
    assert config.actor_rollout_ref.actor.strategy == "megatron"
    assert config.critic.strategy == config.actor_rollout_ref.ref.strategy == "megatron"
    assert config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu == 8 * 1024


def test_a_users_override_wins_however_it_is_spelled():
    base = {"+a.b": 1, "c": 2}
    assert merged_overrides(base, {"a.b": 5, "+c": 6, "d": 7}) == {"+a.b": 5, "c": 6, "d": 7}


@pytest.mark.parametrize("text", ['say "hi"', "a,b", "null", "x=y", "a b", "${oc.env:HOME}x"])
def test_any_text_arrives_as_it_was(text):
    config = composed({"trainer.experiment_name": text, "+extra.list": [text, "b"]})
    assert config._get_node("trainer")._get_node("experiment_name")._value() == text
    assert config.extra._get_node("list")._get_node(0)._value() == text


def test_only_the_cpu_needs_its_platform_named():
    assert environment(setup())["VERL_PLATFORM"] == "cpu"
    assert "VERL_PLATFORM" not in environment(setup(device="cuda"))
    assert int(environment(setup(devices=64))["OMP_NUM_THREADS"]) == 1


def test_a_recipe_with_a_search_section_rolls_out_search_episodes(tmp_path):
    write = {
        "model": {"path": str(tmp_path)},
        "data": {"train": ["t.jsonl"], "validation": ["v.jsonl"], "batch": 2},
        "algorithm": {"steps": 1},
        "reward": {"components": {"answer": {"scorer": "qa_em"}}},
        "search": {"max_turns": 4, "retriever": {"topk": 5}},
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(write))
    recipe = load_recipe(path)
    composed = compose_arguments(recipe, setup_of(recipe, "cpu"), {})
    assert "actor_rollout_ref.rollout.agent.default_agent_loop=search" in composed
    assert "+search.max_turns=4" in composed
    assert "+search.retriever.topk=5" in composed
    path.write_text(json.dumps(write | {"search": {"max_turn": 4}}))
    with pytest.raises(ConfigError, match=r"max_turn.*did you mean 'max_turns'"):
        load_recipe(path)
