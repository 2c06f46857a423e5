"""A policy's tokenizer in the form that search episodes need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any


class PolicyTokens:
    """Encodes and decodes with special tokens kept and none added.

    Args:
        tokenizer: of transformers, from verl or ``AutoTokenizer``.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str, /) -> list[int]:
        """The tokens of `text`, without a token before or after them."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def decode(self, tokens: Sequence[int], /) -> str:
        """The text of `tokens`, special ones included."""
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=False)
        return text


@lru_cache(maxsize=8)  # a tokenizer may have thousands, and each trajectory asks
def control_tokens(tokenizer: Any) -> dict[int, str]:
    """Control tokens, which the text of a tool must not produce, each with its text.

    They are the special tokens, and added tokens with punctuation in them such as ``<tool_call>``.
    Added words and runs of white space are ordinary text, and so is the token for unknown words,
    unless it also begins, ends or pads a text.
    """
    found = {
        int(token): added.content
        for token, added in _added(tokenizer).items()
        if added.special or not _is_text(added.content)
    }
    named = zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True)
    found |= {int(token): str(text) for token, text in named}
    acting = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id}
    if tokenizer.unk_token_id not in acting:
        found.pop(tokenizer.unk_token_id, None)
    return found


@lru_cache(maxsize=8)
def message_ends(tokenizer: Any) -> frozenset[int]:
    """The special tokens; one at the end of a turn ends the message."""
    special = {int(token) for token, one in _added(tokenizer).items() if one.special}
    return frozenset(special | set(map(int, tokenizer.all_special_ids)))


def _added(tokenizer: Any) -> Mapping[int, Any]:
    """The tokens that were added to the vocabulary.

    Mistral's own tokenizer does not list them, and never makes control tokens from text.
    """
    try:
        added: Mapping[int, Any] = tokenizer.added_tokens_decoder
    except NotImplementedError:
        return {}
    return added


def _is_text(content: str) -> bool:
    return all(char.isalnum() or char.isspace() or char in "_\u2581" for char in content)
