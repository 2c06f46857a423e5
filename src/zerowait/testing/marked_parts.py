"""The parts of a judge's request that stand between marker lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

MARKED_PART: Final = re.compile(
    r"^<<<BEGIN (?P<name>\S+) (?P<code>[0-9a-f]+)>>>\n(?P<text>.*?)\n"
    r"<<<END (?P=name) (?P=code)>>>$",
    re.DOTALL | re.MULTILINE,
)
_INVISIBLE = "\u200b"  # breaks up control tokens inside the marked parts


def marked_parts(texts: Sequence[str]) -> dict[str, str]:
    """The marked parts by ``prompt``, ``reference`` and ``response``, as far as there are any.

    What stands inside one is never taken for another.
    """
    names = {"PROMPT": "prompt", "GROUND_TRUTH": "reference", "RESPONSE": "response"}
    found: dict[str, str] = {}
    for part in MARKED_PART.finditer("\n".join(texts)):
        name = names.get(part["name"])
        if name is not None:
            found.setdefault(name, part["text"].replace(_INVISIBLE, ""))
    return found
