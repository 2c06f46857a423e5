"""The PPO recipe and its variants for GPUs, as verl itself checks them before it starts."""

from pathlib import Path

import pytest
import verl
from hydra import compose, initialize_config_dir
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast, Qwen2Config
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config

from zerowait.verl.launch.command import compose_arguments, setup_of
from zerowait.verl.launch.recipe import load_recipe

PPO = Path(__file__).parents[2] / "recipes" / "ppo"
CONFIG = str(Path(verl.__file__).parent / "trainer" / "config")


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """What verl looks at before it starts: a configuration and a tokenizer."""
    folder = tmp_path_factory.mktemp("policy")
    words = Tokenizer(WordLevel({"<|endoftext|>": 0}, unk_token="<|endoftext|>"))
    end = {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    PreTrainedTokenizerFast(tokenizer_object=words, **end).save_pretrained(folder)
    Qwen2Config(architectures=["Qwen2ForCausalLM"], num_hidden_layers=1).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(
    ("name", "device", "backend"),
    [("recipe", "cpu", "fsdp2"), ("fsdp2", "cuda", "fsdp2"), ("megatron", "cuda", "megatron")],
)
def test_verl_accepts_its_configuration(name, device, backend, policy):
    recipe = load_recipe(PPO / f"{name}.yaml")
    models = dict.fromkeys(("actor_rollout_ref.model.path", "critic.model.path"), policy)
    command = compose_arguments(recipe, setup_of(recipe, device), models)
    with initialize_config_dir(config_dir=CONFIG, version_base=None):
        config = compose("ppo_trainer", overrides=command)
    assert need_critic(config)
    assert need_reference_policy(config)
    validate_config(config=config, use_reference_policy=True, use_critic=True)
    assert config.algorithm.kl_ctrl.type == "adaptive"
    assert config.critic.strategy == config.actor_rollout_ref.ref.strategy == backend
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert actor.strategy == backend
    assert omega_conf_to_dataclass(config.critic).strategy == backend
