"""A decoding step whose kernels are recorded once and replayed: a CUDA graph.

The step of a small model is hundreds of kernels of some microseconds each, and Python takes longer
to start them than the GPU to run them. A replay starts them all at once. It runs the same kernels
on the same addresses, so the step covers the cache's buffers whole, and everything that changes
between two steps is read from one tensor. The graph is recorded anew for new buffers.

Reference: https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch

from zerowait.verl.cpu.rollout.cache import SlotCache

_log = logging.getLogger(__name__)

_WARM_UP = 2
_TOKEN, _POSITION, _FIRST, _COLUMN = range(4)


class RecordedStep:
    """The model's logits for one new token of every row.

    Args:
        model: a transformers causal language model, in evaluation mode.
        cache: of the rows that are decoded.

    Attributes:
        records: False on a CPU, and once recording has failed: then the same kernels are started
            from Python.
    """

    def __init__(self, model: Any, cache: SlotCache) -> None:
        self._model = model
        self._cache = cache
        self.records = model.device.type == "cuda"
        self._buffers = -1
        self._inputs = torch.empty((4, 0), dtype=torch.int64)
        self._logits = torch.empty(0)
        self._graph: Any = None

    def __call__(self, tokens: Sequence[int], positions: Sequence[int]) -> torch.Tensor:
        """Logits of shape (rows, vocabulary), valid until the next call.

        Args:
            tokens: the newest token of each row.
            positions: where it stands in its row's context.
        """
        fresh = self._buffers != self._cache.buffers
        if fresh:
            self.forget()
            rows, _ = self._cache.capacity
            self._inputs = torch.zeros((4, rows), dtype=torch.int64, device=self._model.device)
        self._inputs.copy_(self._values(tokens, positions))
        if fresh and self.records:
            self._try_to_capture()
        self._buffers = self._cache.buffers
        if self._graph is None:
            self._logits = self._forward()
        else:
            self._graph.replay()
        return self._logits[: len(tokens)]

    def forget(self) -> None:
        """Give back what the graph holds."""
        self._graph = None
        self._logits = torch.empty(0)
        self._buffers = -1

    def _values(self, tokens: Sequence[int], positions: Sequence[int]) -> torch.Tensor:
        """The inputs as one tensor of the host's: a row of `_TOKEN`s, one of `_POSITION`s, ..."""
        rows, _ = self._cache.capacity
        end = self._cache.end
        spare = rows - len(tokens)
        # A row that is not live attends to its own new token only: finite, and never read.
        values = [
            [*tokens, *[0] * spare],
            [*positions, *[0] * spare],
            [*self._cache.first, *[end] * spare],
            [end] * rows,
        ]
        return torch.tensor(values, dtype=torch.int64)

    def _forward(self) -> torch.Tensor:
        inputs = self._inputs
        column = inputs[_COLUMN, :1]
        columns = torch.arange(self._cache.capacity[1], device=inputs.device)
        live = (columns >= inputs[_FIRST].unsqueeze(1)) & (columns <= column)
        with self._cache.whole(column):
            output = self._model(
                input_ids=inputs[_TOKEN].unsqueeze(1),
                position_ids=inputs[_POSITION].unsqueeze(1),
                attention_mask=live[:, None, None, :],
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=1,
            )
        return output.logits[:, -1]

    def _try_to_capture(self) -> None:
        try:
            self._capture()
        except RuntimeError as error:  # a model that asks the device something while it computes
            self.records = False
            _log.warning("decoding goes on without CUDA graphs: %s", error)

    def _capture(self) -> None:
        """Record the step. It writes what the step itself writes, so it may run more than once."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                self._forward()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # "thread_local": what other threads of the process do is no part of this step.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._logits = self._forward()
        self._graph = graph
