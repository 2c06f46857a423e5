"""A decoding step as a CUDA graph: its kernels are captured once and replayed.

A step of a small model is hundreds of kernels of a few microseconds each, which Python launches
slower than the GPU runs them. A replay launches them all at once. It runs the same kernels on the
same addresses, so the step covers the cache's full buffers, and everything that changes between
steps is read from one tensor. Reallocated buffers need a new capture.

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
        cache: of the decoded rows.

    Attributes:
        records: whether steps are replayed. False on a CPU, and after a capture has failed: then
            Python launches the same kernels.
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
            tokens: the newest token of each row; of shape (rows,).
            positions: its position in the row's context; of shape (rows,).
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
        """Free the graph's memory."""
        self._graph = None
        self._logits = torch.empty(0)
        self._buffers = -1

    def _values(self, tokens: Sequence[int], positions: Sequence[int]) -> torch.Tensor:
        """The inputs as an int64 tensor of shape (4, allocated rows) on the host."""
        rows, _ = self._cache.capacity
        end = self._cache.end
        unused = rows - len(tokens)
        # A row that is not in use attends to its own new token only: finite, and never read.
        values = [
            [*tokens, *[0] * unused],
            [*positions, *[0] * unused],
            [*self._cache.first, *[end] * unused],
            [end] * rows,
        ]
        return torch.tensor(values, dtype=torch.int64)

    def _forward(self) -> torch.Tensor:
        inputs = self._inputs
        column = inputs[_COLUMN, :1]
        columns = torch.arange(self._cache.capacity[1], device=inputs.device)
        in_use = (columns >= inputs[_FIRST].unsqueeze(1)) & (columns <= column)
        with self._cache.full_buffers(column):
            output = self._model(
                input_ids=inputs[_TOKEN].unsqueeze(1),
                position_ids=inputs[_POSITION].unsqueeze(1),
                attention_mask=in_use[:, None, None, :],
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=1,
            )
        return output.logits[:, -1]

    def _try_to_capture(self) -> None:
        try:
            self._capture()
        except RuntimeError as error:  # a model that synchronizes with the device in its forward
            self.records = False
            _log.warning("decoding goes on without CUDA graphs: %s", error)

    def _capture(self) -> None:
        """Capture the step, which writes the same values however often it runs."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                self._forward()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # "thread_local": calls of other threads do not invalidate the capture.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._logits = self._forward()
        self._graph = graph
