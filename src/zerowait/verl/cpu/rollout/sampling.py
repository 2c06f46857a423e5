"""Sample tokens: from logits to tokens and their log-probabilities. Pure.

The reported log-probability is the model's, not the sampler's: ``log_softmax(logits /
temperature)`` in float32, before top-k, top-p and penalties, because the trained actor computes the
same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import torch

from zerowait.errors import ConfigError, did_you_mean

_KNOWN = frozenset(
    {
        "temperature",
        "top_k",
        "top_p",
        "repetition_penalty",
        "max_tokens",
        "max_new_tokens",
        "min_tokens",
        "stop",
        "stop_token_ids",
        "ignore_eos",
        "seed",
        "logprobs",
        "include_stop_str_in_output",
    }
)


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """The sampling parameters of one response.

    Args:
        max_tokens: the most tokens of the response.
        temperature: divides the logits; 0 takes the most likely token.
        top_k: sample from the `top_k` most likely tokens; -1 or 0 for all.
        top_p: sample from the smallest set of tokens with at least this probability; 1 for all.
        repetition_penalty: divides (multiplies, if negative) the logits of tokens seen before; 1
            for none. Reference: Keskar et al. 2019 (arXiv:1909.05858).
        min_tokens: number of tokens before a stop token can be sampled.
        stop_ids: tokens that end a response.
        stop_texts: texts whose last token ends a response.
        seed: makes the response repeatable; None uses a random one.

    Raises:
        ValueError: a number is outside its range.
    """

    max_tokens: int
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    min_tokens: int = 0
    stop_ids: frozenset[int] = frozenset()
    stop_texts: tuple[str, ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, not {self.max_tokens}")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature must be 0 or more, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if not self.repetition_penalty > 0:
            raise ValueError(f"repetition_penalty must be above 0, not {self.repetition_penalty}")


class SamplingDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults for the parameters that a request does not have.

    Args:
        max_tokens: the most tokens of the response.
        room: tokens that the model can process after the prompt, which limits every request.
        stop_ids: the model's end tokens.
        ignore_eos: whether those are ignored.
    """

    max_tokens: int
    room: int
    stop_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False


def sampling_from(given: Mapping[str, Any], defaults: SamplingDefaults) -> Sampling:
    """The `Sampling` for a request's parameters, which have vLLM's names.

    Raises:
        ConfigError: a parameter is not supported, and would be ignored.

    >>> sampling_from({"max_tokens": 9}, SamplingDefaults(max_tokens=4, room=8)).max_tokens
    8
    """
    for name, value in given.items():
        if name not in _KNOWN and value is not None:
            raise ConfigError(
                f"the transformers rollout has no sampling parameter {name!r}"
                f"{did_you_mean(name, sorted(_KNOWN))}"
            )
    wanted = given.get("max_tokens") or given.get("max_new_tokens") or defaults.max_tokens
    texts = given.get("stop") or ()
    own = frozenset() if given.get("ignore_eos", defaults.ignore_eos) else defaults.stop_ids
    seed = given.get("seed")
    return Sampling(
        max_tokens=max(1, min(int(wanted), defaults.room)),
        temperature=float(given.get("temperature", 1.0)),
        top_k=int(given.get("top_k") or -1),
        top_p=float(given.get("top_p", 1.0)),
        repetition_penalty=float(given.get("repetition_penalty") or 1.0),
        min_tokens=int(given.get("min_tokens") or 0),
        stop_ids=own | frozenset(given.get("stop_token_ids") or ()),
        stop_texts=(texts,) if isinstance(texts, str) else tuple(texts),
        seed=None if seed is None else int(seed),
    )


class SamplingTensors:
    """The sampling parameters of all rows as tensors of shape (rows, 1), or None where unused."""

    def __init__(self, rows: Sequence[Sampling], device: torch.device) -> None:
        def column(values: list[Any], dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor(values, dtype=dtype, device=device).unsqueeze(1)

        greedy = [row.temperature == 0 for row in rows]
        self.all_greedy = all(greedy)
        self.greedy = column(greedy, torch.bool) if any(greedy) else None
        self.temperature = column([row.temperature or 1.0 for row in rows], torch.float32)
        self.top_k = self.top_p = self.penalty = None
        if any(row.top_k > 0 for row in rows):
            everything = torch.iinfo(torch.int64).max
            ks = [row.top_k if row.top_k > 0 else everything for row in rows]
            self.top_k = column(ks, torch.int64)
        if any(row.top_p < 1 for row in rows):
            self.top_p = column([row.top_p for row in rows], torch.float32)
        if any(row.repetition_penalty != 1 for row in rows):
            self.penalty = column([row.repetition_penalty for row in rows], torch.float32)


def next_tokens(
    logits: torch.Tensor,
    tensors: SamplingTensors,
    uniforms: torch.Tensor,
    *,
    seen: Sequence[Sequence[int]] = (),
    forbidden: Sequence[tuple[int, Sequence[int]]] = (),
) -> tuple[torch.Tensor, torch.Tensor]:
    """One token per row, and its log-probability under ``log_softmax(logits / temperature)``.

    Args:
        logits: of shape (rows, vocabulary).
        tensors: sampling parameters of the same rows.
        uniforms: random numbers in [0, 1), of shape (rows,), float64.
        seen: the tokens of each row so far; only read with a repetition penalty.
        forbidden: pairs of a row and the tokens that it must not sample.

    Returns:
        Tokens, int64, and log-probabilities, float32, both of shape (rows,).
    """
    logits = logits.float()
    choice = logits / tensors.temperature
    log_probs = torch.log_softmax(choice, dim=-1)
    if tensors.penalty is not None:
        choice = penalised(logits, tensors.penalty, seen) / tensors.temperature
    if forbidden:
        choice = choice.clone()
        for row, tokens in forbidden:
            choice[row, list(tokens)] = -torch.inf
    tokens = _choose(choice, tensors, uniforms)
    return tokens, log_probs.gather(1, tokens.unsqueeze(1)).squeeze(1)


def penalised(
    logits: torch.Tensor, penalty: torch.Tensor, seen: Sequence[Sequence[int]]
) -> torch.Tensor:
    """The logits after the repetition penalty.

    Args:
        logits: of shape (rows, vocabulary).
        penalty: of shape (rows, 1).
        seen: the tokens of each row so far.
    """
    mask = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
    for row, tokens in enumerate(seen):
        mask[row, torch.tensor(list(tokens), dtype=torch.int64, device=logits.device)] = True
    lowered = torch.where(logits > 0, logits / penalty, logits * penalty)
    return torch.where(mask, lowered, logits)


def _choose(
    log_weights: torch.Tensor, tensors: SamplingTensors, uniforms: torch.Tensor
) -> torch.Tensor:
    if tensors.all_greedy:
        return log_weights.argmax(dim=-1)
    drawn = draw(_truncated(log_weights, tensors), uniforms)
    if tensors.greedy is None:
        return drawn
    return torch.where(tensors.greedy.squeeze(1), log_weights.argmax(dim=-1), drawn)


def _truncated(log_weights: torch.Tensor, tensors: SamplingTensors) -> torch.Tensor:
    """The log-weights (rows, vocabulary), minus infinity outside top-k and then outside top-p."""
    if tensors.top_k is None and tensors.top_p is None:
        return log_weights
    ordered, order = log_weights.sort(dim=-1, descending=True)
    if tensors.top_k is not None:
        rank = torch.arange(ordered.shape[1], device=ordered.device)
        ordered = ordered.masked_fill(rank >= tensors.top_k, -torch.inf)
    if tensors.top_p is not None:
        probs = torch.softmax(ordered, dim=-1)
        # By the probability before a token, so that the most likely one always stays.
        outside = probs.cumsum(-1) - probs >= tensors.top_p
        ordered = ordered.masked_fill(outside & (tensors.top_p < 1), -torch.inf)
    # Back in the vocabulary's order, so that a row without limits is sampled as if it were alone.
    return torch.empty_like(ordered).scatter_(1, order, ordered)


def draw(log_weights: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """One index per row, of shape (rows,), with probability proportional to ``exp(log_weights)``.

    The cumulative sum is inverted in float64: a row's index depends on its own random number only,
    not on the other rows.

    Args:
        log_weights: of shape (rows, vocabulary).
        uniforms: random numbers in [0, 1), of shape (rows,).
    """
    shifted = log_weights - log_weights.amax(dim=-1, keepdim=True)
    cumulative = shifted.exp().double().cumsum(dim=-1)
    target = uniforms.unsqueeze(1) * cumulative[:, -1:]
    index = torch.searchsorted(cumulative, target, right=True).squeeze(1)
    return index.clamp_(max=log_weights.shape[1] - 1)
