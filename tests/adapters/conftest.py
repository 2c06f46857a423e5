"""A tiny policy whose training takes a second a step, and a judged configuration."""

import pytest


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The folder of a small Qwen2 with a tokenizer of letters."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    folder = tmp_path_factory.mktemp("tiny")
    letters = ["<pad>", "<eos>", *"abcdefghijklmnopqrstuvwxyz 0123456789+?<>/=."]
    table = Tokenizer(models.WordLevel({c: i for i, c in enumerate(letters)}, unk_token=" "))
    table.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=table, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(letters), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256,
        pad_token_id=0, eos_token_id=1, bos_token_id=None, tie_word_embeddings=True,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def judged():
    """A configuration with one judge that is asked once, of a fake judge and further settings."""

    def config(judge, **settings):
        return {
            "components": {"quality": {"judge": "q"}},
            "judges": {
                "q": {
                    "endpoints": [{"base_url": judge.url, "model": "m"}],
                    "verdict": {"integer": [1, 10]},
                }
            },
            "traffic": {"attempts": 1, "give_up_after": 10000},
            "on_failure": {"default": "neutral"},
            "cache": "off",
        } | settings

    return config
