"""The visible answer in a judge's text: without thinking, and in plain characters."""

from __future__ import annotations

import re
from typing import NamedTuple

from zerowait.patterns import lazy_pattern

_WORD = (
    r"(?:think(?:ing)?|thoughts?|reasoning|reflection|analysis|scratchpad|cot|monologue"
    r"|chain[_ -]of[_ -]thought)"
)
_NAME = rf"(?:[a-z0-9]{{1,16}}[:_-])?{_WORD}(?:[ _-]\w{{1,24}})?"
# Tags, Mistral's brackets, the tokens of Command A, Apertus and Gemma, the lines of Ollama, Granite
# and Apriel.
_MARK = lazy_pattern(
    rf"""
      < [ ]? (?P<ends>/?) (?P<tag>{_NAME}) (?: \s[^<>\n]{{0,80}} )? (?: > | (?=\n) )
    | \[ (?P<ends_square>/?) (?P<square> THINK(?:ING)? ) \]
    | (?P<opens> <\|(?:(?:begin|start)_(?:of_)?)?{_WORD}\|> | <\|inner_prefix\|>
        | <unused94> | <\|channel>(?=thought) )
    | (?P<closes> <\|(?:/|end_(?:of_)?){_WORD}\|> | <\|inner_suffix\|> | <unused95> | <channel\|>
        | (?<=\n)\.\.\.done[ ]thinking\. | (?<=\n)here[ ]is[ ]my[ ]response:
        | \[BEGIN[ ]FINAL[ ]RESPONSE\] )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_HEADING = lazy_pattern(
    r"""\s*+ [*\#_]*+ [ ]? (?: thinking[ ]process \b | thinking\.\.\. | here(?:'s|[ ]is)[ ](?:a|my)
        [ ](?:thinking|thought)[ ]process \b | here[ ]are[ ]my[ ]reasoning[ ]steps )""",
    re.VERBOSE | re.IGNORECASE,
)
_MARKED = ("<", "[", "...", "my response:")
_AFTER_EDGE = lazy_pattern(r"[ \t]*(?:\n|\Z)|[\w*#{\[]")  # in a sentence a blank or a stop follows
_CONTROL_TOKEN = lazy_pattern(r"<\|[A-Za-z_\u2581/]{1,32}\|>|</s>|\[END FINAL RESPONSE\]")
# OpenAI's harmony, also where the server left its control tokens out of the text.
_HARMONY = lazy_pattern(r"\s*<\|(?:start|channel)\|>|analysis(?=[^\s:.,;*_<-])")
_CHANNEL = "<|channel|>"
_FINAL = lazy_pattern(
    r"<\|channel\|>final\b[ ]?(?:<\|constrain\|>\w{1,16})?<\|message\|>|assistant ?final"
)
_MESSAGE_ENDS = lazy_pattern(r"<\|(?:end|return|call|start)\|>")


class SplitReply(NamedTuple):
    """A judge's text, split at the end of its thinking.

    Args:
        answer: the text behind the thinking; None where the thinking never ended.
        before: the text before a mark that ends thinking, where no mark began it. Either the chat
            template began it in the prompt, or the mark is quoted and this is the answer.
    """

    answer: str | None
    before: str = ""


class _Mark(NamedTuple):
    name: str
    ends: bool
    start: int
    end: int
    is_token: bool


def split_thinking(text: str) -> SplitReply:
    r"""`text` split into its thinking and its answer.

    Thinking is what stands before a closing mark that begins or ends a line, or between marks when
    the text begins with one; a tag mentioned inside a sentence is no thinking.

    >>> split_thinking("<think>\n3? no\n</think>\n\n7").answer
    '\n\n7'
    >>> split_thinking("<think>\nScore: 3").answer is None
    True
    >>> split_thinking("Score: 3\n</think>\nScore: 7")
    SplitReply(answer='\nScore: 7', before='Score: 3\n')
    """
    if _HARMONY.match(text) or _CHANNEL in text:
        return _final_message(text)
    if not any(map(text.__contains__, _MARKED)) and not _HEADING.match(text):
        return SplitReply(text)
    answer, before = _after_marks(text)
    plain = None if answer is None else _CONTROL_TOKEN.sub(" ", answer)
    return SplitReply(plain, _CONTROL_TOKEN.sub(" ", before))


def _final_message(text: str) -> SplitReply:
    """The message of harmony's final channel; no answer where there are several.

    Of several, one may be quoted in the other.
    """
    finals = list(_FINAL.finditer(text))
    if len(finals) != 1:
        return SplitReply(None)
    answer = _MESSAGE_ENDS.split(text[finals[0].end() :], maxsplit=1)[0]
    before = "" if _HARMONY.match(text) else text[: finals[0].start()]
    return SplitReply(*(_CONTROL_TOKEN.sub(" ", part) for part in (answer, before)))


def _after_marks(text: str) -> SplitReply:
    """`text` split behind the last mark that ends thinking."""
    marks = [_mark(match) for match in _MARK.finditer(text)]
    open_names = ["heading"] if _HEADING.match(text) else []
    known = last = end = 0  # the end of the last thinking that had a beginning; the last mark
    for mark in marks:
        if mark.ends:
            if not open_names and not _at_edge(text, mark):
                continue
            last, end = mark.start, mark.end
            if open_names:
                _close(open_names, mark.name)
                known = known if open_names else end
        elif mark.is_token or _begins_line(text, mark.start) or _follows(text, mark.start, end):
            open_names.append(mark.name)
    if open_names:
        return SplitReply(None)
    return SplitReply(text[end:], text[known:last])


def _close(open_names: list[str], name: str) -> None:
    """Remove the innermost thinking called `name` and all inside it; an unknown name ends all."""
    del open_names[open_names.index(name) if name in open_names else 0 :]


def _mark(match: re.Match[str]) -> _Mark:
    """The mark that `_MARK` matched."""
    ends = bool(match["ends"] or match["ends_square"] or match["closes"])
    is_token = bool(match["opens"] or match["closes"])
    name = (match["tag"] or match["square"] or "").lower()
    return _Mark(name, ends, match.start(), match.end(), is_token)


def _at_edge(text: str, mark: _Mark) -> bool:
    """Whether a mark begins or ends a line, as no mark that a sentence mentions does."""
    return (
        mark.is_token
        or _begins_line(text, mark.start)
        or _AFTER_EDGE.match(text, mark.end) is not None
    )


def _follows(text: str, position: int, end: int) -> bool:
    """Whether nothing but blanks lies between `end` and `position`."""
    while position > end and text[position - 1].isspace():
        position -= 1
    return position == end


def _begins_line(text: str, position: int) -> bool:
    while position and text[position - 1] in " \t":
        position -= 1
    return position == 0 or text[position - 1] == "\n"


_PLAIN: dict[int, str] = {
    **dict.fromkeys((0x00A0, 0x202F, 0x20E3, 0x3000, *range(0x2000, 0x200B)), " "),
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
_ODD = lazy_pattern(f"[\uff01-\uff5e\ud800-\udfff{''.join(map(chr, _PLAIN))}]")
_ASCII_LOWER = {code: chr(code + 32) for code in range(ord("A"), ord("Z") + 1)}


def plain_characters(text: str) -> str:
    """`text` in the characters that labels and verdicts are looked for in.

    Full-width forms, typographic quotes and dashes become ASCII, line ends become newlines, and
    invisible characters are left out. Other digits stay as they are, so that no superscript turns
    into part of a number.
    """
    if not text.isascii():
        text = _ODD.sub(_plain_character, text)  # several times faster than str.translate
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text


def folded(text: str) -> str:
    """`text` in lower case and as long as before, so that positions hold for both.

    >>> folded("Score: I\u0130")
    'score: iİ'
    """
    lower = text.lower()
    return lower if len(lower) == len(text) else text.translate(_ASCII_LOWER)


def visible_answer(text: str) -> str | None:
    r"""The answer in `text` in plain characters, or None where the thinking never ended.

    >>> visible_answer("<think>\n3? no\n</think>\n\nScore\uff1a\uff17")
    '\n\nScore:7'
    >>> visible_answer("<think>\nScore: 3") is None
    True
    """
    return split_thinking(plain_characters(text)).answer


def _plain_character(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xFF01 <= code <= 0xFF5E:  # full-width ASCII
        return chr(code - 0xFEE0)
    return _PLAIN.get(code, "\ufffd")  # what is left is half of a surrogate pair
