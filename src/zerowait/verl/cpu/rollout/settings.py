"""Settings and limits of a rollout server, from verl's and the model's configuration. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from zerowait.errors import ConfigError
from zerowait.verl.cpu.rollout.batch import BatchLimits

ROLLOUT_NAME = "transformers"
"""The value of ``actor_rollout_ref.rollout.name``."""

_CPU_CACHE_BYTES = 2 << 30
_LEAST_CACHE_TOKENS = 4_096


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section ``rollout.engine_kwargs.transformers``.

    Args:
        cache_tokens: rows times columns of the cache; None fits it to the memory.
        quiet_s: seconds; requests that arrive within this time of each other are prefilled
            together.
        threads: number of CPU threads that decode; None for torch's default.
        seeded: whether a response's seed follows from ``rollout.seed``, the version of the weights,
            the prompt and its repetition, so that a run on one replica can be repeated. Otherwise
            it is random. A ``seed`` in a request takes precedence.
        graphs: whether a GPU decodes with CUDA graphs.
    """

    cache_tokens: int | None = None
    quiet_s: float = 0.01
    threads: int | None = None
    seeded: bool = True
    graphs: bool = True


def rollout_settings_from(given: Mapping[str, Any]) -> ServerSettings:
    """The settings in ``rollout.engine_kwargs.transformers``.

    Raises:
        ConfigError: a key is unknown or a value is wrong.

    >>> rollout_settings_from({"threads": 2}).threads
    2
    """
    try:
        return msgspec.convert(dict(given), ServerSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"actor_rollout_ref.rollout.engine_kwargs.transformers: {error}"
        ) from None


def bytes_per_token(config: Any, itemsize: int) -> int:
    """Bytes of one token's keys and values over all layers.

    Args:
        config: the text part of the model's configuration.
        itemsize: bytes per number.
    """
    heads = config.num_attention_heads
    groups = getattr(config, "num_key_value_heads", None) or heads
    dimension = getattr(config, "head_dim", None) or config.hidden_size // heads
    return int(2 * config.num_hidden_layers * groups * dimension * itemsize)


def limits_from(
    rollout: Any, settings: ServerSettings, *, token_bytes: int, free_bytes: int | None
) -> BatchLimits:
    """The limits of a batch.

    Args:
        rollout: verl's rollout configuration.
        settings: ours; may set the size of the cache.
        token_bytes: bytes of one token in the cache.
        free_bytes: memory for the cache; None on a CPU, where it is 2 GiB.
    """
    budget = _CPU_CACHE_BYTES if free_bytes is None else free_bytes
    fitted = max(_LEAST_CACHE_TOKENS, budget // token_bytes)
    return BatchLimits(
        rows=int(rollout.max_num_seqs),
        cache_tokens=settings.cache_tokens or fitted,
        prefill_tokens=int(rollout.max_num_batched_tokens),
    )


def check_attention(config: Any, longest: int) -> None:
    """Refuse a model with layers that do not attend to all earlier tokens.

    Args:
        config: the text part of the model's configuration.
        longest: the longest context, in tokens.

    Raises:
        ConfigError: the model has other layers, or a sliding window shorter than `longest`.
    """
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = getattr(config, "sliding_window", None)
    if kinds == {"full_attention"}:
        return
    if kinds <= {"full_attention", "sliding_attention"} and window and window >= longest:
        return
    raise ConfigError(
        f"the transformers rollout can decode models with full attention; {config.model_type} has "
        f"{', '.join(sorted(kinds))} with a window of {window} for {longest} tokens: use "
        "actor_rollout_ref.rollout.name=vllm or sglang"
    )


def stop_ids_of(tokenizer: Any, generation_config: Any) -> frozenset[int]:
    """The tokens that end a response, from the tokenizer and the generation configuration."""
    named = [getattr(tokenizer, "eos_token_id", None)]
    listed = getattr(generation_config, "eos_token_id", None)
    named += listed if isinstance(listed, list | tuple) else [listed]
    return frozenset(int(token) for token in named if token is not None)


def response_seed(run: int, *, replica: int, version: int, prompt: bytes, repeat: int) -> int:
    """The seed of one response, equal for equal arguments.

    Args:
        run: seed of the run.
        replica: rank of the rollout server.
        version: of the weights.
        prompt: from `prompt_key`.
        repeat: how often this prompt was sampled before with these weights.

    >>> place = dict(replica=0, version=1, prompt=b"p")
    >>> response_seed(42, **place, repeat=0) == response_seed(42, **place, repeat=1)
    False
    """
    place = f"{run}/{replica}/{version}/{repeat}/".encode() + prompt
    return int.from_bytes(hashlib.blake2b(place, digest_size=8).digest())


def prompt_key(prompt_ids: Sequence[int]) -> bytes:
    """A hash of a prompt's tokens, for `response_seed`."""
    return hashlib.blake2b(repr(list(prompt_ids)).encode(), digest_size=16).digest()


def server_name(replica_rank: int) -> str:
    """The Ray actor name of a replica's server.

    >>> server_name(0)
    'transformers_server_0'
    """
    return f"{ROLLOUT_NAME}_server_{replica_rank}"


def check_parallelism(rollout: Any) -> None:
    """Refuse to split one model over several devices.

    Raises:
        ConfigError: a parallel size is not 1.
    """
    sizes = ("tensor_model_parallel_size", "data_parallel_size", "pipeline_model_parallel_size")
    for name in sizes:
        size = getattr(rollout, name)
        if size != 1:
            raise ConfigError(
                f"actor_rollout_ref.rollout.{name} is {size}: the transformers rollout keeps a "
                "whole model per device, so set it to 1"
            )
