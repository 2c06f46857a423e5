"""verl's fused kernels give the log-probabilities that the models' own logits give."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from verl.models.transformers.monkey_patch import patch_forward_with_backends

from zerowait.verl.launch.fused_kernels import EXACT_MODELS

SMALL = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "max_position_embeddings": 64,
}
EXPERTS = {
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "num_local_experts": 2,
}
TEMPERATURE = 0.7


def largest_difference(kind, monkeypatch, **more):
    """Between the log-probabilities of a small model with random weights, computed both ways."""
    experts = EXPERTS if "moe" in kind or kind == "mixtral" else {}
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SMALL, **experts, **more)
    model = AutoModelForCausalLM.from_config(config).eval()
    monkeypatch.setattr(type(model), "forward", type(model).forward)  # put back afterwards
    tokens = torch.randint(3, 97, (2, 9))
    with torch.no_grad():
        logits = model(input_ids=tokens).logits.float() / TEMPERATURE
        plain = logits.log_softmax(-1)[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0]
        patch_forward_with_backends(model, use_fused_kernels=True, fused_kernels_backend="torch")
        fused = model(input_ids=tokens, temperature=TEMPERATURE, return_dict=True).log_probs
    return (plain - fused[:, :-1]).abs().max().item()


@pytest.mark.parametrize("kind", sorted(EXACT_MODELS))
def test_the_models_for_which_they_are_used(kind, monkeypatch):
    assert largest_difference(kind, monkeypatch) < 1e-5


def test_a_model_that_scales_its_logits_gets_others_and_is_left_out(monkeypatch):
    assert "granite" not in EXACT_MODELS
    assert largest_difference("granite", monkeypatch, logits_scaling=8.0) > 1e-3
