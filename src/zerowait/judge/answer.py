"""The part of a judge's text that is meant as its answer, in plain characters."""

from __future__ import annotations

import re

from zerowait.judge.thinking import without_thinking

_PLAIN: dict[int, str] = {
    **dict.fromkeys((0x00A0, 0x202F, 0x3000, *range(0x2000, 0x200B)), " "),
    **dict.fromkeys((0x0085, 0x2028, 0x2029), "\n"),
    **dict.fromkeys((0x00AD, 0x061C, 0x180E, *range(0x200B, 0x2010), 0xFEFF), ""),  # invisible
    **dict.fromkeys((*range(0x2060, 0x2066), *range(0xFE00, 0xFE10)), ""),
    **dict.fromkeys((0xE0001, *range(0xE0020, 0xE0080)), ""),
    **dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2212), "-"),  # an em dash is no minus
    **dict.fromkeys((0x2018, 0x2019), "'"),
    **dict.fromkeys((0x201C, 0x201D), '"'),
    0x00D7: "*",
    0x25C1: "<",  # Kimi writes its thinking tags with triangles
    0x25B7: ">",
}
_ODD = re.compile(f"[\uff01-\uff5e\ud800-\udfff{''.join(map(chr, _PLAIN))}]")
_ASCII_LOWER = {code: chr(code + 32) for code in range(ord("A"), ord("Z") + 1)}


def plain(text: str) -> str:
    """`text` in the characters that labels and verdicts are looked for in.

    Full-width forms, typographic quotes and dashes become ASCII, line ends become newlines, and
    characters that nobody sees are left out. Other digits stay as they are, so that no
    superscript turns into part of a number.
    """
    if not text.isascii():
        text = _ODD.sub(_plain_character, text)  # several times faster than str.translate
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text


def folded(text: str) -> str:
    """`text` in lower case, each character in its place.

    >>> folded("Score: I\u0130")
    'score: iİ'
    """
    lower = text.lower()
    return lower if len(lower) == len(text) else text.translate(_ASCII_LOWER)


def answer_text(text: str) -> str | None:
    r"""`text`, plain and without its thinking, or None when the thinking never ended.

    >>> answer_text("<think>\n3? no\n</think>\n\nScore\uff1a\uff17")
    '\n\nScore:7'
    >>> answer_text("<think>\nScore: 3") is None
    True
    """
    return without_thinking(plain(text))


def _plain_character(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xFF01 <= code <= 0xFF5E:  # full-width ASCII
        return chr(code - 0xFEE0)
    return _PLAIN.get(code, "\ufffd")  # what is left is half of a surrogate pair
