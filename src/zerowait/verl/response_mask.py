"""verl's response mask: 1 for a token that the model wrote, 0 for a tool's or for padding.

Imports neither verl nor torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

RESPONSE_MASK: Final = "response_mask"
"""The key in ``extra_fields`` under which the reward manager finds a response's mask."""
NOTHING_WRITTEN: Final = "the model wrote no token of the response, where a reward could stand"


def last_written(mask: Sequence[int]) -> int | None:
    """The index of the last token that the model wrote; None if it wrote none.

    A reward has to be on such a token: estimators multiply the others by 0.

    Args:
        mask: of shape (response_length,).

    >>> last_written([0, 1, 1, 0]), last_written([0, 0])
    (2, None)
    """
    return next((at for at in range(len(mask) - 1, -1, -1) if mask[at]), None)


def own_text(tokens: Sequence[Any], mask: Sequence[int], decode: Callable[[Any], str]) -> str:
    """The text that the model wrote, without the text of tools.

    Spans on two sides of a tool's text are joined by a newline, so that no word or number is made
    of their ends.

    Args:
        tokens: of the response, of shape (response_length,).
        mask: of the same shape.
        decode: from tokens to text.
    """
    texts = (decode(tokens[start:end]) for start, end in _spans(mask))
    return "\n".join(text for text in texts if text)


def _spans(mask: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Start and end (exclusive) of each run of the model's tokens."""
    start = 0
    for written, run in groupby(mask, key=bool):
        end = start + sum(1 for _ in run)
        if written:
            yield start, end
        start = end
