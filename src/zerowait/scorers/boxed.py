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
    for start in reversed(list(_START.finditer(text))):
        end = _closing_brace(text, start.end())
        if end is not None:
            return text[start.end() : end].strip()
    return None


def _closing_brace(text: str, inside: int) -> int | None:
    """Where the brace stands that closes the one before `inside`; None when nothing does."""
    depth = 1
    for brace in _BRACE.finditer(text, inside):
        depth += 1 if brace[1] == "{" else -1
        if not depth:
            return brace.start(1)
    return None
