"""verl's response mask: 1 for a token that the model wrote, 0 for a tool's or for padding.

Imports neither verl nor torch.
"""

from __future__ import annotations

import re
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


def episode_messages(
    tokens: Sequence[Any], mask: Sequence[int], decode: Callable[[Any], str], *, verbatim: bool
) -> list[dict[str, Any]]:
    """The messages of an episode, by who wrote its tokens.

    A run of the model's tokens is a message of the assistant, whose ``last_token`` is the index of
    its last one; a run of others is a message of a tool.

    Args:
        tokens: of the response, of shape (response_length,).
        mask: of the same shape.
        decode: from tokens to text.
        verbatim: whether tools' texts have no role names of a chat template around them.
    """
    messages: list[dict[str, Any]] = []
    start = 0
    for written, run in groupby(mask, key=bool):
        end = start + sum(1 for _ in run)
        text = decode(tokens[start:end])
        if written:
            messages.append({"role": "assistant", "content": text, "last_token": end - 1})
        else:
            content = text if verbatim else _TEMPLATE.sub("", text)
            messages.append({"role": "tool", "content": content.strip()})
        start = end
    return messages


_TEMPLATE: Final = re.compile(
    r"\A\s*(?:user|tool|ipython|observation)[ \t]*\n|\n?\s*assistant\s*\Z"
)
"""What a chat template leaves around a tool's text when its control tokens are not shown."""


def _spans(mask: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Start and end (exclusive) of each run of the model's tokens."""
    start = 0
    for written, run in groupby(mask, key=bool):
        end = start + sum(1 for _ in run)
        if written:
            yield start, end
        start = end
