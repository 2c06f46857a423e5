"""The program in a response: its last code block."""

from __future__ import annotations

import re
from typing import Final

_OPENING: Final = re.compile(
    r"^(?:(?P<indent>[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?)(?P<mark>`{3,}|~{3,})"
    r"[ \t]*(?P<info>[^\n`]*)|[^\n`]*(?P<behind_words>`{3,})[ \t]*(?P<word>[\w{][^\s`]*)[ \t]*)$",
    re.MULTILINE,
)
_CLOSING: Final = re.compile(
    r"^(?P<indent>[ \t]*)(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>[^\n`]*)$"
    r"|(?<=[^\s`])(?P<behind_code>`{3,})[ \t]*$",
    re.MULTILINE,
)
_DEEPER: Final = 4
"""A fence that is indented by so much more than the block's first is part of the block."""

_PYTHON: Final = re.compile(r"i?py(?:thon)?[\d.]*")
_SAME: Final = {"cpp": {"c++", "cc", "cxx"}, "nodejs": {"javascript", "js", "node"}}


def program_in(text: str, language: str = "python") -> str:
    r"""The last code block of `text` in `language`; empty without any.

    A block without a language counts where none has the right one, and a block that is never closed
    goes on to the end. A block may be indented, as within a list, and begin behind other words.
    Text without any fence is a program as a whole.

    >>> program_in("Use a loop.\n```python\nprint(1)\n```\nIt prints\n```\n1\n```")
    'print(1)\n'
    >>> program_in("print(1)")
    'print(1)'
    """
    blocks = _blocks(text.replace("\r\n", "\n"))
    if not blocks:
        return text if text.strip() else ""
    named = [code for info, code in blocks if _is_language(info, language)]
    unnamed = [code for info, code in blocks if not info]
    return next((code for code in reversed(unnamed + named) if code.strip()), "")


def _is_language(info: str, language: str) -> bool:
    if language == "python":
        return _PYTHON.fullmatch(info) is not None
    return info == language or info in _SAME.get(language, ())


def _blocks(text: str) -> list[tuple[str, str]]:
    """Language, in lower case, and content of each fenced block."""
    blocks, end = [], 0
    while (opening := _OPENING.search(text, end)) is not None:
        start = min(opening.end() + 1, len(text))
        closing = _closing(text, start, opening)
        stop, end = (len(text), len(text)) if closing is None else closing.span()
        words = re.split(r"[\s:,=]", (opening["info"] or opening["word"] or "").strip())
        blocks.append((words[0].strip("{}.").lower(), _unindented(text[start:stop])))
    return blocks


def _closing(text: str, start: int, opening: re.Match[str]) -> re.Match[str] | None:
    """The fence that closes a block: of the same characters, as long, with nothing behind it."""
    mark = opening["mark"] or opening["behind_words"]
    deepest = _width(opening["indent"]) + _DEEPER
    deeper = None
    for fence in _CLOSING.finditer(text, start):
        if fence["info"] and fence["info"].strip():
            if deeper is not None:
                break
        elif (fence["mark"] or fence["behind_code"]).startswith(mark):
            if _width(fence["indent"]) < deepest:
                return fence
            deeper = deeper or fence
    return deeper


def _width(indent: str | None) -> int:
    return len((indent or "").expandtabs(4))


def _unindented(code: str) -> str:
    """`code` without the indentation of its first line, as blocks within lists have it."""
    first = next((line for line in code.split("\n") if line.strip()), "")
    depth = len(first) - len(first.lstrip(" \t"))
    return re.sub(rf"^[ \t]{{1,{depth}}}", "", code, flags=re.MULTILINE) if depth else code
