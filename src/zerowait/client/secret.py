"""A key that cannot be printed by accident."""

from __future__ import annotations

from typing import Any

from zerowait.config.obfuscated_pickle import obfuscated
from zerowait.errors import ConfigError


class Secret:
    """A key. `repr`, `str` and formatting show ``***``; only `reveal` gives the text.

    White space around the key is dropped, because keys read from files end in a newline.

    Raises:
        ConfigError: the key is empty, or has a character that an HTTP header cannot carry.

    >>> key = Secret("sk-planted")
    >>> f"{key} {key!r}"
    '*** ***'
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text.strip()
        del text  # a traceback that shows local variables must not show this one
        if not self._text:
            raise ConfigError("the key is empty: set the variable that api_key_env names")
        if not (self._text.isascii() and self._text.isprintable()):
            raise ConfigError("the key holds a character that no HTTP header can carry")

    def reveal(self) -> str:
        """The key itself, for the one place that sends it."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    def __reduce__(self) -> tuple[Any, ...]:
        return obfuscated(Secret, self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)
