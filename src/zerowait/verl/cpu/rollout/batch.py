"""Decode one left-padded batch on one device: a token per row and step.

Synchronous, and used by one thread at a time; `zerowait.verl.cpu.rollout.loop` schedules its rows.
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
    """Upper limits of a batch.

    Args:
        rows: responses decoded at a time.
        cache_tokens: rows times columns of the cache, with every response at its full length.
        prefill_tokens: rows times columns of one forward pass over prompts.
    """

    rows: int = 256
    cache_tokens: int = 65_536
    prefill_tokens: int = 8_192


class DecodingBatch:
    """The responses that are decoded together.

    Args:
        model: a transformers causal language model, in evaluation mode.
        limits: of the batch.
        graphs: whether to decode in fixed shapes, which a GPU replays as CUDA graphs: for small
            models, whose kernels run faster than Python can launch them.
    """

    def __init__(self, model: Any, limits: BatchLimits, *, graphs: bool = False) -> None:
        self.rows: list[Generation] = []
        self._model = model
        self._limits = limits
        self._cache = SlotCache(model.config.get_text_config().num_hidden_layers)
        self._tensors: SamplingTensors | None = None
        self._recorded = RecordedStep(model, self._cache) if graphs else None

    @property
    def columns(self) -> int:
        """The longest context that any row can reach, in tokens."""
        return max((row.longest for row in self.rows), default=0)

    @property
    def records_steps(self) -> bool:
        """Whether steps are replayed CUDA graphs."""
        return self._recorded is not None and self._recorded.records

    def fits(self, rows: int, columns: int) -> bool:
        """Whether this many rows of at most `columns` tokens fit; a single row always does."""
        if rows == 1:
            return True
        return rows <= self._limits.rows and rows * columns <= self._limits.cache_tokens

    @torch.inference_mode()
    def admit(self, joining: Sequence[Generation]) -> None:
        """Prefill new rows and sample the first token of each; `step` then decodes them.

        Equal contexts, such as those of one prompt group, are prefilled once.
        """
        for rows_by_context in self._prefill_batches(joining):
            contexts = list(rows_by_context)
            logits, filled = self._prefill(contexts)
            source = [at for at, rows in enumerate(rows_by_context.values()) for _ in rows]
            rows = [row for group in rows_by_context.values() for row in group]
            lengths = [len(row.prompt_ids) + len(row.token_ids) for row in rows]
            self._cache.append(filled, source, lengths)
            self.rows += rows
            index = torch.tensor(source, dtype=torch.int64, device=logits.device)
            sampling = [row.sampling for row in rows]
            self._sample(
                logits.index_select(0, index), rows, SamplingTensors(sampling, logits.device)
            )
        self._tensors = None

    @torch.inference_mode()
    def step(self) -> None:
        """Sample one token for every row."""
        if self._tensors is None:
            sampling = [row.sampling for row in self.rows]
            self._tensors = SamplingTensors(sampling, self._model.device)
        self._cache.make_room()
        tokens = [row.token_ids[-1] for row in self.rows]
        positions = [len(row.prompt_ids) + len(row.token_ids) - 1 for row in self.rows]
        logits = (self._recorded or self._step)(tokens, positions)
        self._cache.advance()
        self._sample(logits, self.rows, self._tensors)

    @torch.inference_mode()
    def take_done(self) -> list[Generation]:
        """Remove and return the rows that are finished or cancelled."""
        done: list[Generation] = []
        for row in range(len(self.rows) - 1, -1, -1):
            if self.rows[row].done:
                done.append(self.rows[row])
                self.rows[row] = self.rows[-1]
                self.rows.pop()
                self._cache.remove(row)
        if done:
            self._tensors = None
        return done

    def take_all(self) -> list[Generation]:
        """Remove and return all rows, and free the cache's memory."""
        rows, self.rows = self.rows, []
        self._cache.release()
        if self._recorded is not None:
            self._recorded.forget()
        self._tensors = None
        return rows

    def _prefill_batches(
        self, joining: Sequence[Generation]
    ) -> Iterator[dict[tuple[int, ...], list[Generation]]]:
        """Batches of contexts, each with the rows that continue it, within ``prefill_tokens``."""
        rows_by_context: dict[tuple[int, ...], list[Generation]] = {}
        for row in joining:
            rows_by_context.setdefault(tuple(row.context), []).append(row)
        prefill: dict[tuple[int, ...], list[Generation]] = {}
        widest = 0
        for context, rows in rows_by_context.items():
            widest = max(widest, len(context))
            if prefill and widest * (len(prefill) + 1) > self._limits.prefill_tokens:
                yield prefill
                prefill, widest = {}, len(context)
            prefill[context] = rows
        if prefill:
            yield prefill

    def _step(self, tokens: Sequence[int], positions: Sequence[int]) -> torch.Tensor:
        """Logits of shape (rows, vocabulary) after the newest token of every row."""
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

    def _prefill(self, contexts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, DynamicCache]:
        """Logits (contexts, vocabulary) after each context, and their left-padded cache."""
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
    def _sample(logits: torch.Tensor, rows: Sequence[Generation], tensors: SamplingTensors) -> None:
        """Sample the next token of each row from logits (rows, vocabulary), and append it."""
        uniforms = torch.tensor([row.uniform() for row in rows], dtype=torch.float64)
        banned = [(at, list(row.forbidden())) for at, row in enumerate(rows)]
        tokens, log_probs = next_tokens(
            logits,
            tensors,
            uniforms.to(logits.device),
            seen=[row.context for row in rows] if tensors.penalty is not None else (),
            forbidden=[(at, tokens) for at, tokens in banned if tokens],
        )
        for row, token, log_prob in zip(rows, tokens.tolist(), log_probs.tolist(), strict=True):
            row.accept(token, log_prob)
