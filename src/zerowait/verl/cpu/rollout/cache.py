"""Keys and values of a left-padded batch, laid out so that rows come and go cheaply.

All rows end in the same column: a new token of every row goes to column `end`. A row that is
finished is replaced by the last one, which copies one row and not the batch; a new row is written
right-aligned, ending where the others end. So a row's tokens are always contiguous, with padding
on its left only, and one slice of the buffers is what attention sees.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

_HEADROOM = 64


class _Layer(CacheLayerMixin):
    """One layer's part of the buffers; the columns are kept by the `SlotCache`."""

    is_sliding = False

    def __init__(self, owner: SlotCache) -> None:
        super().__init__()
        self.owner = owner

    def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
        raise NotImplementedError("rows are put into the cache before they are decoded")

    def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        """The keys and values of every live column, the new one included."""
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
    """The cache of one batch.

    Args:
        layers: number of decoder layers.

    Attributes:
        rows: how many rows are live.
        start, end: the columns ``[start, end)`` hold tokens; the next one is `end`.
        first: the column of each row's first token.
        buffers: counts up whenever the buffers are others than before.
        column: where a step over whole buffers writes, see `whole`.
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
        """Rows and columns of the buffers."""
        return self._row_capacity, self._column_capacity

    @contextlib.contextmanager
    def whole(self, column: torch.Tensor) -> Iterator[None]:
        """Within, a step covers the buffers as they are, and writes to ``column[0]``.

        No shape depends then on which rows and columns are live, and no number of the host's gets
        into the step: what a CUDA graph needs. The caller's mask leaves out what is not live.
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
        """See to it that column `end` can be written."""
        if self.end < self._column_capacity:
            return
        live = self.end - self.start
        self._rebuild(self._row_capacity, max(live + _HEADROOM, live + live // 2), live)

    def advance(self) -> None:
        """Column `end` was written by every layer: the next one follows."""
        self.end += 1

    def mask(self) -> torch.Tensor:
        """What each row's new token may attend to: booleans (rows, 1, 1, columns), itself last."""
        device = self.layers[0].keys.device
        columns = torch.arange(self.start, self.end + 1, device=device)
        first = torch.tensor(self.first, dtype=torch.int64, device=device)
        return (columns >= first.unsqueeze(1))[:, None, None, :]

    def release(self) -> None:
        """Forget all rows and give the memory back."""
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
        # Zeros: what padding holds is masked, but a masked NaN would still spoil the product.
        new = old.new_zeros((row_capacity, old.shape[1], column_capacity, old.shape[3]))
        live = self.end - self.start
        if self.rows and live:
            new[: self.rows, :, end - live : end] = old[: self.rows, :, self.start : self.end]
        return new
