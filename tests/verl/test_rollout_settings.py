from types import SimpleNamespace

import pytest

from zerowait.errors import ConfigError
from zerowait.verl.cpu.rollout.settings import (
    ServerSettings,
    bytes_per_token,
    check_attention,
    check_parallelism,
    limits_from,
    prompt_key,
    response_seed,
    rollout_settings_from,
    stop_ids_of,
)

ROLLOUT = SimpleNamespace(max_num_seqs=64, max_num_batched_tokens=512)


def text_config(**more):
    shape = {"num_attention_heads": 8, "num_hidden_layers": 3, "hidden_size": 64}
    return SimpleNamespace(**(shape | {"model_type": "some", "layer_types": None} | more))


def test_an_unknown_setting_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"engine_kwargs\.transformers.*cache_token"):
        rollout_settings_from({"cache_token": 5})


def test_a_token_takes_keys_and_values_of_every_layer():
    assert bytes_per_token(text_config(), 4) == 2 * 3 * 8 * 8 * 4
    assert bytes_per_token(text_config(num_key_value_heads=2, head_dim=16), 2) == 2 * 3 * 2 * 16 * 2


def test_the_cache_is_as_large_as_said_or_as_the_memory_allows():
    said = limits_from(ROLLOUT, ServerSettings(cache_tokens=99), token_bytes=8, free_bytes=None)
    assert (said.cache_tokens, said.rows, said.prefill_tokens) == (99, 64, 512)
    fitted = limits_from(ROLLOUT, ServerSettings(), token_bytes=8, free_bytes=80_000)
    assert fitted.cache_tokens == 10_000


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"layer_types": ["full_attention"] * 3, "sliding_window": None},
        {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 100},
    ],
)
def test_models_that_see_the_whole_context_are_accepted(more):
    check_attention(text_config(**more), longest=100)


@pytest.mark.parametrize(
    "more",
    [
        {"layer_types": ["full_attention", "linear_attention"]},
        {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 99},
    ],
)
def test_models_that_forget_are_refused_with_a_way_out(more):
    with pytest.raises(ConfigError, match="vllm"):
        check_attention(text_config(**more), longest=100)


def test_every_end_token_that_is_named_anywhere_ends_a_response():
    tokenizer = SimpleNamespace(eos_token_id=2)
    assert stop_ids_of(tokenizer, SimpleNamespace(eos_token_id=[3, 4])) == {2, 3, 4}
    assert stop_ids_of(tokenizer, SimpleNamespace(eos_token_id=5)) == {2, 5}
    assert stop_ids_of(tokenizer, None) == {2}


def test_a_seed_belongs_to_one_place_in_one_run():
    place = {"replica": 0, "version": 3, "prompt": prompt_key([1, 2]), "repeat": 0}
    seed = response_seed(42, **place)
    assert seed == response_seed(42, **place)
    others = [
        response_seed(43, **place),
        *(
            response_seed(42, **(place | change))
            for change in (
                {"replica": 1},
                {"version": 4},
                {"prompt": prompt_key([12])},
                {"repeat": 1},
            )
        ),
    ]
    assert len({seed, *others}) == 6


def test_a_model_is_not_split_over_devices():
    sizes = {"data_parallel_size": 1, "pipeline_model_parallel_size": 1}
    check_parallelism(SimpleNamespace(tensor_model_parallel_size=1, **sizes))
    with pytest.raises(ConfigError, match="tensor_model_parallel_size is 2"):
        check_parallelism(SimpleNamespace(tensor_model_parallel_size=2, **sizes))
