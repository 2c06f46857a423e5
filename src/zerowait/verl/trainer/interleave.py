"""Interleave the rows that are out of the loss with the others of a step."""

from __future__ import annotations

from collections.abc import Sequence


def interleaved(masked: Sequence[bool], ranks: int) -> list[int]:
    """An order of the rows in which each rank's masked rows lie evenly between its others.

    A mini-batch of masked rows only has a loss of 0/0. verl gives each rank a contiguous share of
    the rows and cuts it into contiguous mini-batches; with this order each of them has a row in the
    loss, if the rank has enough of them.

    Args:
        masked: by row, whether it is out of the loss; of shape (rows,).
        ranks: number of equal shares.

    >>> interleaved([True, True, False, False], ranks=1)
    [0, 2, 1, 3]
    """
    share = len(masked) // ranks
    order: list[int] = []
    for start in range(0, share * ranks, share):
        rows = range(start, start + share)
        kinds = ([r for r in rows if masked[r]], [r for r in rows if not masked[r]])
        positions = {r: (at + 0.5) / len(kind) for kind in kinds for at, r in enumerate(kind)}
        order += sorted(rows, key=lambda r: (positions[r], r))
    return order
