"""What the environment says, in tokens: plain text for whichever tokenizer reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from zerowait.search.passages import harmless_passage

_TRIES: Final = 3
_CHARS_PER_TOKEN: Final = 64
_WITHOUT_BRACKETS: Final = str.maketrans(dict.fromkeys("<>[]{}|", " "))


class Tokens(Protocol):
    """Text to tokens and back, special tokens shown."""

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
    """At most `most` tokens of `text`, of which none is a control token and none writes a tag.

    What a tokenizer makes of a text is read again as the model will read it, because it may write
    other characters than it was given: small letters, compatibility forms, no invisible ones.

    Args:
        text: from anybody.
        tokens: the policy's tokenizer.
        most: how many tokens there is room for.
        reserved: texts that must not stand in it.
        control: tokens that must not be among them.
    """
    text = text[: most * _CHARS_PER_TOKEN]  # a document of megabytes is not encoded for 500 tokens
    for _ in range(_TRIES):
        text = harmless_passage(text, reserved=reserved)
        found = [token for token in tokens.encode(text) if token not in control]
        said = tokens.decode(found)
        if harmless_passage(said, reserved=reserved) == said:
            return tuple(found[:most])
        text = said
    bare = tokens.encode(text.translate(_WITHOUT_BRACKETS))
    return tuple([token for token in bare if token not in control][:most])
