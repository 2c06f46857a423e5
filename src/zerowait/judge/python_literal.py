"""Python's way of writing an object, as JSON: judges that think in Python print their dicts."""

from __future__ import annotations

import re

# A string that nothing ends takes the rest, so that none is looked through twice.
_STRING = r"'(?:[^'\\\n]++|\\.)*+(?:'|(?=\n)|\Z)|\"(?:[^\"\\]++|\\.)*+(?:\"|\Z)"
_TOKEN = re.compile(
    rf"(?P<string>{_STRING})|(?P<word>[A-Za-z_]\w*+)|(?P<bracket>[\[{{}}\]])|[^\[{{}}\]\w'\"]++|.",
    re.DOTALL,
)
_WORDS = {"True": "true", "False": "false", "None": "null"}
_ESCAPE = re.compile(r"\\x[0-9a-f]{2}|\\(.)|\"", re.DOTALL)


def as_json(text: str, start: int) -> tuple[str, int] | None:
    r"""The object that begins at `start`, as JSON, and where it ends; None where it never does.

    >>> as_json("Here: {'score': 8, 'clear': True, 'why': 'It\\'s \"good\"'}.", 6)
    ('{"score": 8, "clear": true, "why": "It\'s \\"good\\""}', 56)
    """
    depth, said = 0, []
    for token in _TOKEN.finditer(text, start):
        if token["string"]:
            said.append(_string(token["string"]))
            continue
        said.append(_WORDS.get(token["word"], token[0]))
        if token["bracket"]:
            depth += 1 if token["bracket"] in "[{" else -1
            if not depth:
                return "".join(said), token.end()
    return None


def _string(literal: str) -> str:
    if literal[0] == '"' and "\\x" not in literal and "\\'" not in literal:
        return literal
    return f'"{_ESCAPE.sub(_escape, literal[1:-1])}"'


def _escape(match: re.Match[str]) -> str:
    if match[0] == '"':
        return '\\"'
    if match[1] is None:
        return f"\\u00{match[0][2:]}"
    return "'" if match[1] == "'" else match[0]
