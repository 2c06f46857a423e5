"""A critic on the CPU, which verl loads with a package for GPUs only."""

from types import SimpleNamespace

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from verl.workers.engine import EngineRegistry

from zerowait.verl.cpu.engine import CpuCritic


@pytest.fixture
def policy(tmp_path):
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 32}
    config = Qwen2Config(num_attention_heads=2, num_key_value_heads=1, **shape)
    model = Qwen2ForCausalLM(config)
    model.save_pretrained(tmp_path)
    return model, tmp_path


def built(folder):
    """verl's own way to a module, without its cluster."""
    engine = object.__new__(CpuCritic)
    files = Qwen2Config.from_pretrained(folder, attn_implementation="sdpa")
    files.tie_word_embeddings = True  # so that verl fills no shards of other processes
    engine.model_config = SimpleNamespace(
        hf_config=files,
        model_type="value_model",
        local_path=str(folder),
        trust_remote_code=False,
        use_liger=False,
        fused_kernel_options=None,
        use_fused_kernels=False,
        enable_gradient_checkpointing=False,
    )
    engine.engine_config = SimpleNamespace(model_dtype="fp32", forward_only=False)
    engine.device_mesh, engine.use_remove_padding = None, False
    engine.ulysses_sequence_parallel_size = 1
    return engine, engine._build_module()


def test_it_is_the_policys_layers_with_one_value_per_token(policy):
    model, folder = policy
    engine, critic = built(folder)
    assert critic(torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 1)
    assert torch.equal(critic.model.layers[0].mlp.up_proj.weight, layer(model))
    assert engine.model_config.model_type == "value_model"


def layer(model):
    return model.model.layers[0].mlp.up_proj.weight


def test_its_value_is_the_same_each_time_it_is_trained(policy):
    """Dropout would make the values that returns are compared with another model's."""
    _, critic = built(policy[1])
    critic.train()
    asked = torch.tensor([[1, 2, 3]])
    assert torch.equal(critic(asked).logits, critic(asked).logits)


def test_verl_finds_it_among_its_engines(monkeypatch):
    monkeypatch.setenv("VERL_ENGINE_DEVICE", "cpu")
    assert EngineRegistry.get_engine_cls("value_model", "fsdp2") is CpuCritic
