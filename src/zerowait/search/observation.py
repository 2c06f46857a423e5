"""Observations as tokens that contain no control token and no tag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from zerowait.search.passages import escape_tags

_TRIES: Final = 3
_CHARS_PER_TOKEN: Final = 64
_WITHOUT_BRACKETS: Final = str.maketrans(dict.fromkeys("<>[]{}|", " "))


class Tokens(Protocol):
    """A tokenizer: text to tokens and back, special tokens included."""

    def encode(self, text: str, /) -> Sequence[int]:
        """The tokens of `text`, nothing added before or after."""

    def decode(self, tokens: Sequence[int], /) -> str:
        """The text of `tokens`, special ones included."""


def plain_tokens(
    text: str,
    tokens: Tokens,
    *,
    most: int,
    reserved: Sequence[str] = (),
    control: frozenset[int] = frozenset(),
) -> tuple[int, ...]:
    """At most `most` tokens of `text`, without control tokens and without tags.

    The tokens are decoded and checked again, because tokenizers normalize: they may lower-case,
    compose characters and drop invisible ones, which can turn harmless text into a tag.

    Args:
        text: untrusted.
        tokens: the policy's tokenizer.
        most: maximal number of tokens.
        reserved: texts that must not occur.
        control: tokens that must not occur.
    """
    text = text[: most * _CHARS_PER_TOKEN]  # a document of megabytes is not encoded for 500 tokens
    for _ in range(_TRIES):
        text = escape_tags(text, reserved=reserved)
        found = [token for token in tokens.encode(text) if token not in control]
        decoded = tokens.decode(found)
        if escape_tags(decoded, reserved=reserved) == decoded:
            return tuple(found[:most])
        text = decoded
    bare = tokens.encode(text.translate(_WITHOUT_BRACKETS))
    return tuple([token for token in bare if token not in control][:most])
