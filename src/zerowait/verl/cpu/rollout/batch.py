"""Decoding: one left-padded batch on one device, a token per step for every row.

Synchronous and used by one thread at a time; `zerowait.verl.cpu.rollout.loop` decides who is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import torch
from transformers import DynamicCache

from zerowait.verl.cpu.rollout.cache import SlotCache
from zerowait.verl.cpu.rollout.generation import Generation
from zerowait.verl.cpu.rollout.graph import RecordedStep
from zerowait.verl.cpu.rollout.sampling import SamplingTensors, next_tokens


class BatchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one batch may hold.

    Args:
        rows: responses decoded at once.
        cache_tokens: rows times columns of the cache, counted with every response at its longest.
        prefill_tokens: rows times columns of one forward pass over prompts.
    """

    rows: int = 256
    cache_tokens: int = 65_536
    prefill_tokens: int = 8_192


class DecodingBatch:
    """The responses that are decoded together.

    Args:
        model: a transformers causal language model, in evaluation mode.
        limits: how much the batch may hold.
        graphs: decode in fixed shapes, which on a GPU are recorded and replayed: for models whose
            kernels are shorter than it takes Python to start them.
    """

    def __init__(self, model: Any, limits: BatchLimits, *, graphs: bool = False) -> None:
        self.rows: list[Generation] = []
        self._model = model
        self._limits = limits
        self._cache = SlotCache(model.config.get_text_config().num_hidden_layers)
        self._controls: SamplingTensors | None = None
        self._recorded = RecordedStep(model, self._cache) if graphs else None

    @property
    def columns(self) -> int:
        """The longest that any row's context can grow to."""
        return max((row.longest for row in self.rows), default=0)

    @property
    def records_steps(self) -> bool:
        """Whether steps are replayed CUDA graphs."""
        return self._recorded is not None and self._recorded.records

    def fits(self, rows: int, columns: int) -> bool:
        """Whether the batch may be so many rows of at most so many tokens; a single one always."""
        if rows == 1:
            return True
        return rows <= self._limits.rows and rows * columns <= self._limits.cache_tokens

    @torch.inference_mode()
    def admit(self, joining: Sequence[Generation]) -> None:
        """Read the contexts of `joining`, write one token of each, and decode them from now on.

        Equal contexts, such as those of one prompt group, are read once.
        """
        for readers in self._prefill_batches(joining):
            contexts = list(readers)
            logits, filled = self._read(contexts)
            source = [at for at, rows in enumerate(readers.values()) for _ in rows]
            rows = [row for group in readers.values() for row in group]
            lengths = [len(row.prompt_ids) + len(row.token_ids) for row in rows]
            self._cache.append(filled, source, lengths)
            self.rows += rows
            index = torch.tensor(source, dtype=torch.int64, device=logits.device)
            sampling = [row.sampling for row in rows]
            self._write(
                logits.index_select(0, index), rows, SamplingTensors(sampling, logits.device)
            )
        self._controls = None

    @torch.inference_mode()
    def step(self) -> None:
        """Write one token of every row."""
        if self._controls is None:
            sampling = [row.sampling for row in self.rows]
            self._controls = SamplingTensors(sampling, self._model.device)
        self._cache.make_room()
        tokens = [row.token_ids[-1] for row in self.rows]
        positions = [len(row.prompt_ids) + len(row.token_ids) - 1 for row in self.rows]
        logits = (self._recorded or self._step)(tokens, positions)
        self._cache.advance()
        self._write(logits, self.rows, self._controls)

    @torch.inference_mode()
    def take_done(self) -> list[Generation]:
        """Remove and return the rows that want no further token."""
        done: list[Generation] = []
        for row in range(len(self.rows) - 1, -1, -1):
            if self.rows[row].done:
                done.append(self.rows[row])
                self.rows[row] = self.rows[-1]
                self.rows.pop()
                self._cache.remove(row)
        if done:
            self._controls = None
        return done

    def take_all(self) -> list[Generation]:
        """Remove and return every row, and give the cache's memory back."""
        rows, self.rows = self.rows, []
        self._cache.release()
        if self._recorded is not None:
            self._recorded.forget()
        self._controls = None
        return rows

    def _prefill_batches(
        self, joining: Sequence[Generation]
    ) -> Iterator[dict[tuple[int, ...], list[Generation]]]:
        """Contexts with the responses that continue them, as much at a time as may be read."""
        readers: dict[tuple[int, ...], list[Generation]] = {}
        for row in joining:
            readers.setdefault(tuple(row.context), []).append(row)
        portion: dict[tuple[int, ...], list[Generation]] = {}
        widest = 0
        for context, rows in readers.items():
            widest = max(widest, len(context))
            if portion and widest * (len(portion) + 1) > self._limits.prefill_tokens:
                yield portion
                portion, widest = {}, len(context)
            portion[context] = rows
        if portion:
            yield portion

    def _step(self, tokens: Sequence[int], positions: Sequence[int]) -> torch.Tensor:
        """The logits after one new token of every row."""
        device = self._model.device
        output = self._model(
            input_ids=torch.tensor(tokens, device=device).unsqueeze(1),
            position_ids=torch.tensor(positions, device=device).unsqueeze(1),
            attention_mask=self._cache.mask(),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1]

    def _read(self, contexts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, DynamicCache]:
        """The logits after each context, and a cache that holds them all, left-padded."""
        device = self._model.device
        widest = max(len(context) for context in contexts)
        padded = [[0] * (widest - len(context)) + list(context) for context in contexts]
        masks = [[0] * (widest - len(context)) + [1] * len(context) for context in contexts]
        mask = torch.tensor(masks, device=device)
        filled = DynamicCache()
        output = self._model(
            input_ids=torch.tensor(padded, device=device),
            position_ids=(mask.cumsum(-1) - 1).clamp_(min=0),
            attention_mask=mask,
            past_key_values=filled,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1], filled

    @staticmethod
    def _write(logits: torch.Tensor, rows: Sequence[Generation], controls: SamplingTensors) -> None:
        """Sample the next token of each row and append it."""
        uniforms = torch.tensor([row.uniform() for row in rows], dtype=torch.float64)
        banned = [(at, list(row.forbidden())) for at, row in enumerate(rows)]
        tokens, log_probs = next_tokens(
            logits,
            controls,
            uniforms.to(logits.device),
            seen=[row.context for row in rows] if controls.penalty is not None else (),
            forbidden=[(at, tokens) for at, tokens in banned if tokens],
        )
        for row, token, log_prob in zip(rows, tokens.tolist(), log_probs.tolist(), strict=True):
            row.accept(token, log_prob)
