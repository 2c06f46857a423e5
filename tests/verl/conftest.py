"""Small models that live in memory, and verl imported once with its own warnings kept out."""

import warnings
from types import SimpleNamespace

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import verl  # noqa: F401
    from transformers import LlamaConfig, LlamaForCausalLM

from zerowait.verl.rollout import attention

VOCABULARY = 61


def small_model(*, layers=2, heads=4, groups=2, tied=True, seed=0):
    """A random Llama that computes in a millisecond, with peaked enough logits to be greedy on."""
    attention.register()
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        max_position_embeddings=512,
        tie_word_embeddings=tied,
        initializer_range=0.3,
        attn_implementation=attention.NAME,
    )
    torch.manual_seed(seed)
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="session")
def model():
    return small_model()


@pytest.fixture
def tokenizer():
    """Token ids are letters: 0 is a, 1 is b."""
    return SimpleNamespace(
        eos_token_id=2, decode=lambda ids: "".join(chr(ord("a") + int(token)) for token in ids)
    )
