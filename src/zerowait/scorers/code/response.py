"""The program in a response: its last code block."""

from __future__ import annotations

import re
from typing import Final

_FENCE: Final = re.compile(r"^[ \t]*(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>[^\n`]*)$", re.MULTILINE)
_PYTHON: Final = frozenset({"python", "py", "python3", "python2", "py3"})
_SAME: Final = {"cpp": {"c++", "cc", "cxx"}, "nodejs": {"javascript", "js", "node"}}


def program_in(text: str, language: str = "python") -> str:
    r"""The last code block of `text` in `language`; empty without any.

    A block without a language counts where none has the right one, and a block that is never closed
    goes on to the end. Text without any fence is a program as a whole.

    >>> program_in("Use a loop.\n```python\nprint(1)\n```\nIt prints\n```\n1\n```")
    'print(1)\n'
    >>> program_in("print(1)")
    'print(1)'
    """
    blocks = _blocks(text)
    if not blocks:
        return text if text.strip() else ""
    names = _PYTHON if language == "python" else {language, *_SAME.get(language, ())}
    for wanted in (names, {""}):
        found = [code for info, code in blocks if info in wanted]
        if found:
            return found[-1]
    return ""


def _blocks(text: str) -> list[tuple[str, str]]:
    """Language, in lower case, and content of each fenced block."""
    blocks, end = [], 0
    while (opening := _FENCE.search(text, end)) is not None:
        start = min(opening.end() + 1, len(text))
        closing = _closing(text, start, opening["mark"])
        stop, end = (len(text), len(text)) if closing is None else closing.span()
        words = opening["info"].split()
        blocks.append((words[0].strip("{}.").lower() if words else "", text[start:stop]))
    return blocks


def _closing(text: str, start: int, mark: str) -> re.Match[str] | None:
    """The fence that closes a block: of the same characters, as long, with nothing behind it."""
    for fence in _FENCE.finditer(text, start):
        if fence["mark"].startswith(mark) and not fence["info"].strip():
            return fence
    return None
