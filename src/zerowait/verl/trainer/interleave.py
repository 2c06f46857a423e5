"""The order of a step's rows when some of them carry no loss."""

from __future__ import annotations

from collections.abc import Sequence


def interleaved(silent: Sequence[bool], ranks: int) -> list[int]:
    """An order of the rows in which each rank's silent ones lie evenly between its others.

    A mini-batch in which every row is silent has a loss of 0/0. verl gives each rank a contiguous
    share of the rows and cuts it into contiguous mini-batches, so with this order each of them has
    a row that speaks, as long as the rank has that many.

    Args:
        silent: by row, whether it is out of the loss.
        ranks: how many equal shares the rows are dealt out in.

    >>> spread([True, True, False, False], ranks=1)
    [0, 2, 1, 3]
    """
    share = len(silent) // ranks
    order: list[int] = []
    for start in range(0, share * ranks, share):
        rows = range(start, start + share)
        kinds = ([r for r in rows if silent[r]], [r for r in rows if not silent[r]])
        places = {r: (at + 0.5) / len(kind) for kind in kinds for at, r in enumerate(kind)}
        order += sorted(rows, key=lambda r: (places[r], r))
    return order
