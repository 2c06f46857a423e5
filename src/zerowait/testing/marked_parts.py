"""The parts between marker lines in a judge's request: prompt, reference and response."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

MARKED_PART: Final = re.compile(
    r"^<<<BEGIN (?P<name>\S+) (?P<code>[0-9a-f]+)>>>\n(?P<text>.*?)\n"
    r"<<<END (?P=name) (?P=code)>>>$",
    re.DOTALL | re.MULTILINE,
)
_INVISIBLE = "\u200b"  # breaks control tokens inside the marked parts


def marked_parts(texts: Sequence[str]) -> dict[str, str]:
    """The marked parts by name: ``prompt``, ``reference`` and ``response``, those that exist.

    Markers inside a part are text, not parts.
    """
    names = {"PROMPT": "prompt", "GROUND_TRUTH": "reference", "RESPONSE": "response"}
    found: dict[str, str] = {}
    for part in MARKED_PART.finditer("\n".join(texts)):
        name = names.get(part["name"])
        if name is not None:
            found.setdefault(name, part["text"].replace(_INVISIBLE, ""))
    return found
