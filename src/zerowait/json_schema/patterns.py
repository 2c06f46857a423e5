r"""Regular expressions of JSON schemas, matched in linear time.

A policy that is scored by a pattern can write the text on which a backtracking matcher takes for
ever. RE2 has no such text. It has no lookaround and no back references either, and neither has the
part of regular expressions that JSON Schema recommends to keep to (draft 2020-12, section 6.4).

Reference:
    Cox 2010, Regular Expression Matching in the Wild (swtch.com/~rsc/regexp/regexp3.html).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from zerowait.errors import ConfigError

_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|.)", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")

PatternMatch = Callable[[str], bool]


@lru_cache(maxsize=512)
def matcher(pattern: str) -> PatternMatch:
    r"""Whether a text has `pattern` somewhere in it.

    Raises:
        ConfigError: it is no regular expression, or one that takes a matcher that backtracks.

    >>> matcher(r"^\d{4}$")("2024"), matcher(r"^\d{4}$")("in 2024")
    (True, False)
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled: Any = re2.compile(_ESCAPE.sub(_re2_escape, _whole(pattern)), options)
    except re2.error as error:
        what = error.args[0].decode() if error.args else "not a regular expression"
        raise ConfigError(
            f"the pattern {pattern!r}: {what}; patterns are those of RE2, without lookaround and "
            "back references, so that no text can hang them"
        ) from None
    return lambda text: compiled.search(_whole(text)) is not None


def _re2_escape(match: re.Match[str]) -> str:
    return f"\\x{{{match[1]}}}" if match[1] else match[0]


def _whole(text: str) -> str:
    """`text` with U+FFFD for halves of surrogate pairs, which JSON can carry and UTF-8 cannot."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)
