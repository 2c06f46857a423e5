r"""The ``\boxed{…}`` answers of a worked solution."""

from __future__ import annotations

import re

_START = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACE = re.compile(r"(?<!\\)(?:\\\\)*([{}])")


# Text between boxes that are given as one answer, duplicates included.
_PAD = r"(?:[\s$,;&]|\\(?:q?quad(?![A-Za-z])|[^A-Za-z]))*+"
_BETWEEN = re.compile(rf"{_PAD}(?:(?:or|and)\b|\\text\{{\s*(?:or|and)\s*\}})?{_PAD}")


def last_boxes(text: str) -> str | None:
    r"""The last boxes with only "and", "or" or commas between them, joined by commas.

    None without a complete box.

    >>> last_boxes(r"$\boxed{3}$ or $\boxed{4}$"), last_boxes(r"\boxed{3}. No: \boxed{4}")
    ('3,4', '4')
    """
    boxes = _boxes(text)
    answers: list[str] = []
    start = len(text)
    for box in reversed(boxes):
        inside = text[box].strip()
        after = box.stop + 1
        if answers and (after > start or not _BETWEEN.fullmatch(text, after, start)):
            break
        if inside not in answers:
            answers.insert(0, inside)
        start = max(text.rfind("\\boxed", 0, box.start), text.rfind("\\fbox", 0, box.start))
    return ",".join(answers) if answers else None


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete ``\boxed{…}`` or ``\fbox{…}``, stripped; None without one.

    Braces are balanced, escaped ones not counted. Of nested boxes the innermost of the last one
    counts, and a box that is never closed hides no earlier one.

    >>> last_boxed(r"\boxed{41}, no: \boxed{\frac{1}{2}}"), last_boxed(r"\boxed{1} \boxed{2")
    ('\\frac{1}{2}', '1')
    >>> last_boxed("42") is None
    True
    """
    boxes = _boxes(text)
    return text[boxes[-1]].strip() if boxes else None


def _boxes(text: str) -> list[slice]:
    """Where the insides of all complete boxes are, in the order in which they begin."""
    starts = {box.end() for box in _START.finditer(text)}
    open_braces: list[int] = []
    found: list[slice] = []
    for brace in _BRACE.finditer(text, min(starts) - 1) if starts else ():
        if brace[1] == "{":
            open_braces.append(brace.end())
        elif open_braces and (inside := open_braces.pop()) in starts:
            found.append(slice(inside, brace.start(1)))
    return sorted(found, key=lambda box: box.start)
