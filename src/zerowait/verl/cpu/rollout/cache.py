"""KV cache of a left-padded batch in which rows can be added and removed cheaply.

All rows end in the same column: the next token of every row goes to column `end`. A finished row is
replaced by the last one, which copies one row and not the batch; a new row is written
right-aligned. So a row's tokens are contiguous with padding on the left only, and attention sees
one slice of the buffers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

_HEADROOM = 64


class _Layer(CacheLayerMixin):
    """One layer's keys and values, of shape (rows, groups, columns, dimension)."""

    is_sliding = False

    def __init__(self, owner: SlotCache) -> None:
        super().__init__()
        self.owner = owner

    def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
        raise NotImplementedError("rows are put into the cache before they are decoded")

    def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Write the new column; returns keys and values of all columns in use.

        Args:
            key_states: of the new token, of shape (rows, groups, 1, dimension).
            value_states: of the same shape.
        """
        column = self.owner.column
        if column is not None:
            self.keys.index_copy_(2, column, key_states)
            self.values.index_copy_(2, column, value_states)
            return self.keys, self.values
        start, end, rows = self.owner.start, self.owner.end, self.owner.rows
        self.keys[:rows, :, end : end + 1] = key_states
        self.values[:rows, :, end : end + 1] = value_states
        return self.keys[:rows, :, start : end + 1], self.values[:rows, :, start : end + 1]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        return self.owner.end - self.owner.start

    def get_max_cache_shape(self) -> int:
        return -1


class SlotCache(Cache):
    """The KV cache of one batch.

    Args:
        layers: number of decoder layers.

    Attributes:
        rows: number of rows in use.
        start, end: the columns ``[start, end)`` hold tokens; the next one is `end`.
        first: the column of each row's first token.
        buffers: version of the buffers; increases when they are reallocated.
        column: the column to write in a step over the full buffers, see `full_buffers`.
    """

    def __init__(self, layers: int) -> None:
        super().__init__(layers=[_Layer(self) for _ in range(layers)])
        self.rows = 0
        self.start = 0
        self.end = 0
        self.first: list[int] = []
        self.buffers = 0
        self.column: torch.Tensor | None = None
        self._row_capacity = 0
        self._column_capacity = 0

    @property
    def capacity(self) -> tuple[int, int]:
        """Allocated rows and columns."""
        return self._row_capacity, self._column_capacity

    @contextlib.contextmanager
    def full_buffers(self, column: torch.Tensor) -> Iterator[None]:
        """In this context a step covers the full buffers and writes to ``column[0]``.

        No shape then depends on the rows and columns in use, and no host value enters the step, as
        a CUDA graph requires. The caller's mask excludes what is not in use.

        Args:
            column: of shape (1,), int64, on the cache's device.
        """
        self.column = column
        try:
            yield
        finally:
            self.column = None

    def append(self, filled: Any, source: Sequence[int], lengths: Sequence[int]) -> None:
        """Add a row for each entry of `source`: a copy of that row of `filled`.

        Args:
            filled: a transformers cache of a left-padded prefill.
            source: rows of `filled`; one may serve several new rows.
            lengths: tokens of each new row.
        """
        widest = max(lengths)
        end = max(self.end, widest)
        self._reserve(filled, rows=self.rows + len(source), columns=end + 1, end=end)
        into = slice(self.rows, self.rows + len(source))
        for ours, theirs in zip(self.layers, filled.layers, strict=True):
            index = torch.tensor(source, dtype=torch.int64, device=theirs.keys.device)
            for mine, its in ((ours.keys, theirs.keys), (ours.values, theirs.values)):
                mine[into, :, end - widest : end] = its[:, :, -widest:].index_select(0, index)
        self.first += [end - length for length in lengths]
        self.rows += len(source)
        self.start = min(self.first)

    def remove(self, row: int) -> None:
        """Drop a row; the last one takes its place."""
        last = self.rows - 1
        if row != last:
            begin = self.first[last]
            for layer in self.layers:
                for buffer in (layer.keys, layer.values):
                    buffer[row, :, begin : self.end] = buffer[last, :, begin : self.end]
            self.first[row] = begin
        self.first.pop()
        self.rows = last
        if not self.rows:
            self.start = self.end = 0
        else:
            self.start = min(self.first)

    def make_room(self) -> None:
        """Grow the buffers if column `end` does not fit."""
        if self.end < self._column_capacity:
            return
        live = self.end - self.start
        self._rebuild(self._row_capacity, max(live + _HEADROOM, live + live // 2), live)

    def advance(self) -> None:
        """Move on to the next column, after every layer has written column `end`."""
        self.end += 1

    def mask(self) -> torch.Tensor:
        """Attention mask of each row's new token: booleans of shape (rows, 1, 1, columns)."""
        device = self.layers[0].keys.device
        columns = torch.arange(self.start, self.end + 1, device=device)
        first = torch.tensor(self.first, dtype=torch.int64, device=device)
        return (columns >= first.unsqueeze(1))[:, None, None, :]

    def release(self) -> None:
        """Drop all rows and free the memory."""
        for layer in self.layers:
            layer.keys = layer.values = None
        self.rows = self.start = self.end = 0
        self.first = []
        self._row_capacity = self._column_capacity = 0
        self.buffers += 1

    def _reserve(self, like: Any, *, rows: int, columns: int, end: int) -> None:
        if not self._column_capacity:
            for ours, theirs in zip(self.layers, like.layers, strict=True):
                ours.keys = theirs.keys.new_empty((0, *theirs.keys.shape[1:]))
                ours.values = theirs.values.new_empty((0, *theirs.values.shape[1:]))
        fits = rows <= self._row_capacity and columns <= self._column_capacity
        if fits and (not self.rows or end == self.end):
            self.end = end
            return
        wider = columns > self._column_capacity
        capacity = columns + _HEADROOM if wider else self._column_capacity
        self._rebuild(max(rows, self._row_capacity), capacity, end)

    def _rebuild(self, row_capacity: int, column_capacity: int, end: int) -> None:
        """Move the live columns into new buffers so that they end at `end`."""
        live = self.end - self.start
        for layer in self.layers:
            layer.keys = self._moved(layer.keys, row_capacity, column_capacity, end)
            layer.values = self._moved(layer.values, row_capacity, column_capacity, end)
        shift = end - self.end
        self.first = [column + shift for column in self.first]
        self.start, self.end = end - live, end
        self._row_capacity, self._column_capacity = row_capacity, column_capacity
        self.buffers += 1

    def _moved(self, old: Any, row_capacity: int, column_capacity: int, end: int) -> Any:
        # Zeros: padding is masked, but a masked NaN would still make the product NaN.
        new = old.new_zeros((row_capacity, old.shape[1], column_capacity, old.shape[3]))
        live = self.end - self.start
        if self.rows and live:
            new[: self.rows, :, end - live : end] = old[: self.rows, :, self.start : self.end]
        return new
