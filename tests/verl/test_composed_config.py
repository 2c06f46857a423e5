"""What verl's own files say fits what is checked, so that nothing right is refused."""

import ast
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, AdvantageEstimator

from zerowait.errors import ConfigError
from zerowait.verl.launch import composed_config as checked
from zerowait.verl.launch.command import compose_arguments, setup_of
from zerowait.verl.launch.composed_config import check_overrides, compose_config
from zerowait.verl.launch.recipe import load_recipe
from zerowait.verl.launch.verl_names import (
    CHOICES,
    COUNTS,
    FURTHER_KINDS,
    REGISTRIES,
    declared_choices,
    declared_fields,
    verl_folder,
)

RECIPES = sorted(Path(__file__).parents[2].glob("recipes/*/*.yaml"))
TRAININGS = [file for file in RECIPES if "algorithm:" in file.read_text()]


def leaves(node, inside=""):
    for key in node:
        whole = f"{inside}.{key}" if inside else str(key)
        value = OmegaConf.select(node, str(key)) if not inside else checked._value(node, key)
        if isinstance(value, DictConfig):
            yield from leaves(value, whole)
        else:
            yield whole, value


@pytest.mark.parametrize("engine", ["dp", "megatron", "torchtitan", "veomni"])
def test_every_value_of_verls_own_files_has_the_type_that_is_asked_for(engine):
    config = compose_config([f"model_engine={engine}"])
    wrong = [
        (key, value, expected)
        for key, value in leaves(config)
        if (expected := checked._expected(key, config, config))
        and not checked._fits(value, expected)
    ]
    assert wrong == []


@pytest.mark.parametrize("engine", ["dp", "megatron", "torchtitan", "veomni"])
def test_every_name_in_verls_own_files_is_a_choice(engine):
    config = compose_config([f"model_engine={engine}"])
    for key, value in leaves(config):
        known = CHOICES.get(key) or REGISTRIES.get(key) or checked._asserted_choices(key, config)
        assert not known or value is None or value in known, key


def test_every_key_that_is_known_by_name_is_one_of_verls():
    config = compose_config([])
    for key in [*FURTHER_KINDS, *CHOICES, *COUNTS, *REGISTRIES]:
        inside, _, name = key.rpartition(".")
        assert name in set(OmegaConf.select(config, inside)), key


def test_the_names_are_verls():
    losses = "actor_rollout_ref.actor.policy_loss.loss_mode"
    assert set(REGISTRIES[losses]) == set(POLICY_LOSS_REGISTRY)
    assert set(REGISTRIES["algorithm.adv_estimator"]) == {name.value for name in AdvantageEstimator}


def test_what_a_dataclass_declares_is_read_with_what_it_inherits():
    fields = declared_fields("verl.workers.config.FSDPActorConfig")
    assert fields["grad_clip"] == {"a number"}  # its own
    assert fields["ppo_mini_batch_size"] == {"a whole number"}  # its parent's
    assert fields["ppo_micro_batch_size_per_gpu"] == {"a whole number", "null"}
    chosen = declared_choices("verl.workers.config.FSDPOptimizerConfig")
    assert chosen["lr_scheduler_type"] == ("constant", "cosine")
    assert declared_fields("verl.workers.config.NoSuchConfig") is None


def test_every_section_names_a_class_that_can_be_read():
    config = compose_config([])
    targets = {value for key, value in leaves(config) if key.endswith("_target_")}
    unread = {target for target in targets if declared_fields(target) is None}
    assert unread == set()
    assert ast.parse((verl_folder() / "base_config.py").read_text())


@pytest.mark.parametrize("file", TRAININGS, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_no_recipe_of_ours_is_refused(file, tmp_path):
    recipe = load_recipe(file, output=tmp_path)
    device = "cpu" if recipe.resources.device in ("auto", "cpu") else "cuda"
    check_overrides(compose_arguments(recipe, setup_of(recipe, device), {}), {}, recipe)


RECIPE = """\
model: {path: model}
data: {train: [t.jsonl], validation: [v.jsonl], batch: 2}
algorithm: {steps: 1}
reward: {components: {answer: {scorer: contains}}}
resources: {device: cpu}
"""


def check(tmp_path, extra, verl=""):
    (tmp_path / "recipe.yaml").write_text(RECIPE + verl)
    recipe = load_recipe(tmp_path / "recipe.yaml")
    check_overrides(compose_arguments(recipe, setup_of(recipe, "cpu"), extra), extra, recipe)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("trainer.save_freq", "10"),
        ("trainer.test_freq", "${trainer.save_freq}"),
        ("trainer.val_before_train", "False"),
        ("data.shuffle", "0"),
        ("actor_rollout_ref.actor.optim.lr", "1"),
        ("actor_rollout_ref.actor.optim.lr", "1e-6"),
        ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", "null"),
        ("actor_rollout_ref.actor.entropy_coeff", "0.001"),
        ("actor_rollout_ref.rollout.top_p", "0.95"),
        ("actor_rollout_ref.rollout.val_kwargs.temperature", "0.5"),
        ("actor_rollout_ref.model.target_modules", "[q_proj,v_proj]"),
        ("trainer.logger", "console"),
        ("trainer.logger", "[console,tensorboard]"),
        ("trainer.v1.sampler.max_off_policy_threshold", "null"),
        ("trainer.total_training_steps", "null"),
        ("trainer.experiment_name", "'7'"),
        ("algorithm.rollout_correction.rollout_is", "token"),
        ("+actor_rollout_ref.rollout.engine_kwargs.vllm.max_num_seqs", "8"),
        ("+actor_rollout_ref.rollout.repetition_penalty", "1.1"),
        ("+actor_rollout_ref.model.override_config.attention_dropout", "0.0"),
        ("++trainer.mine", "1"),
        ("+mine.own", "{a: [1, x]}"),
        ("+ray_kwargs.ray_init.runtime_env.env_vars.A", "'1'"),
        ("model_engine", "dp"),
        ("hydra.run.dir", "/tmp/x"),
    ],
)
def test_what_verl_takes_is_taken(tmp_path, key, value):
    check(tmp_path, {key: value})


def test_an_adapter_that_the_rollout_on_the_cpu_could_not_take_is_refused_with_its_line(tmp_path):
    lora = "verl: {actor_rollout_ref.model.lora_rank: 8}\n"
    with pytest.raises(ConfigError, match=r"recipe.yaml:6: verl: .*lora_rank is 8, .*lora.merge: "):
        check(tmp_path, {}, lora)
    check(tmp_path, {"actor_rollout_ref.model.lora.merge": "true"}, lora)


def test_a_name_that_somebody_else_may_have_registered_is_left_to_verl(tmp_path, monkeypatch):
    mine = {"algorithm.adv_estimator": "mine"}
    with pytest.raises(ConfigError, match="must be one of verl's names, not 'mine'"):
        check(tmp_path, mine)
    check(tmp_path, {**mine, "actor_rollout_ref.model.external_lib": "my.module"})
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "my.module")
    check(tmp_path, mine)


def test_an_item_that_is_there_already_is_told_from_a_new_one(tmp_path):
    with pytest.raises(ConfigError, match=r"trainer\.critic_warmup does not fit .*already at"):
        check(tmp_path, {"+trainer.critic_warmup": "1"})
