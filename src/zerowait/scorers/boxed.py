r"""The ``\boxed{…}`` of a worked solution."""

from __future__ import annotations

import re

_START = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACE = re.compile(r"(?<!\\)(?:\\\\)*([{}])")


def last_boxed(text: str) -> str | None:
    r"""What stands in the last complete ``\boxed{…}`` or ``\fbox{…}``, stripped; None without one.

    Braces are balanced, escaped ones not counted. Of nested boxes the innermost of the last one
    counts, and a box that is never closed hides no earlier one.

    >>> last_boxed(r"\boxed{41}, no: \boxed{\frac{1}{2}}"), last_boxed(r"\boxed{1} \boxed{2")
    ('\\frac{1}{2}', '1')
    >>> last_boxed("42") is None
    True
    """
    starts = {box.end() for box in _START.finditer(text)}
    opened: list[int] = []
    last: tuple[int, int] | None = None
    for brace in _BRACE.finditer(text, min(starts) - 1) if starts else ():
        if brace[1] == "{":
            opened.append(brace.end())
        elif opened and (inside := opened.pop()) in starts and (last is None or inside > last[0]):
            last = inside, brace.start(1)
    return None if last is None else text[slice(*last)].strip()
