"""A policy's tokenizer as episodes want it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class PolicyTokens:
    """A tokenizer of transformers with every special token shown and none added.

    Args:
        tokenizer: what verl or ``AutoTokenizer`` made.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str, /) -> list[int]:
        """The tokens of `text`, nothing before or after them."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def decode(self, tokens: Sequence[int], /) -> str:
        """The text of `tokens`, special ones included."""
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=False)
        return text
