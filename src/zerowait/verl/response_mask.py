"""verl's response mask: 1 for a token that the model wrote, 0 for one of a tool or of padding.

Needs neither verl nor torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

RESPONSE_MASK: Final = "response_mask"
"""Where an agent loop, or the worker that runs it, puts a response's mask in ``extra_fields``."""
NOTHING_WRITTEN: Final = "the model wrote no token of the response, where a reward could stand"


def last_written(mask: Sequence[int]) -> int | None:
    """The place of the last token that the model wrote; None where it wrote none.

    Estimators multiply what stands on other tokens away: a reward has to stand here.

    >>> last_written([0, 1, 1, 0]), last_written([0, 0])
    (2, None)
    """
    places = (place for place in range(len(mask) - 1, -1, -1) if mask[place])
    return next(places, None)


def own_text(tokens: Sequence[Any], mask: Sequence[int], decode: Callable[[Any], str]) -> str:
    """What the model wrote, without what others wrote among it.

    Stretches on two sides of another's text are a line apart, so that no word or number is made of
    their ends.

    Args:
        tokens: of the response.
        mask: of the same length.
        decode: text of tokens.
    """
    stretches = (decode(tokens[start:end]) for start, end in _stretches(mask))
    return "\n".join(text for text in stretches if text)


def _stretches(mask: Sequence[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for written, run in groupby(mask, key=bool):
        end = start + sum(1 for _ in run)
        if written:
            yield start, end
        start = end
