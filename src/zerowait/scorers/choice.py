r"""Which letter of a multiple-choice question a text decides on.

Letters are words too: "A dog" and "I think" decide nothing, and "A) Paris B) Rome" only repeats
the question. What leaves it open, or could be read as two letters, is no choice.
"""

from __future__ import annotations

import re
import unicodedata

from zerowait.scorers.answer import last_answer
from zerowait.scorers.boxed import last_boxed

# What may stand around a letter: brackets, emphasis, quotes, formulas.
_OPEN = r"(?:[\s:*_(\[{\"'`$]|\\(?:text|math)\w*\{)*+"
_CLOSE = r"(?:[)\]}*_\"'`$])*+"
_WORD = r"[A-Za-z0-9_\u00c0-\u024f]"  # Chinese puts no space around a letter
# Not the A of A's, A-level, C++ and U.S.
_WHOLE = rf"(?!{_WORD}|['\u2019.-]{_WORD}|[+#])"
_REASON = r"because|since|as|for|and|or|is|was|due|which|with|given|by|in|not|but|rather"
# A word of the language (a, A, I) or a small letter counts where no noun can follow.
_FIRM = (
    r"(?=[^\S\n]*+(?:\Z|[\n,;:!?)\]}*_\"'`$|/&\u3002]|\.(?!\w)"
    rf"|[-\u2013\u2014](?:\s|\Z)|(?i:{_REASON})\b))"
)
_BARE = rf"(?:(?<!{_WORD})(?<!{_WORD}['\u2019])(?:[B-HJ-Z]{_WHOLE}|[AIa-z]{_WHOLE}{_FIRM}))"
_NOUN = r"(?i:option|choice|letter|answer)"
_CHOICE = re.compile(rf"{_OPEN}(?:{_NOUN}\b{_OPEN})?({_BARE})")
_IS = r"(?:is|was|(?:must|should|would|will|has\s+to)\s+be)\b"
_STATED = re.compile(
    rf"(?i:\b(?:answer|ans|(?:correct|right|best|final|my|chosen)\s+{_NOUN})\b"
    rf"(?:\s+(?:to|for)(?:\s+[\w-]+){{1,6}}?)?[\s*_]*+"
    rf"(?:{_IS}(?:\s+(?:clearly|definitely|therefore|thus|indeed))?|[:=]|[-\u2013\u2014](?=\s))"
    rf"|答案\s*(?:应?[是为选:]|应该是)|(?<![不能])选择?"
    rf"|\b(?:choose|pick|select|go\s+with|opt\s+for))"
)
_RIGHT = re.compile(
    rf"({_BARE}){_CLOSE}\s+(?i:is\s+(?:(?:therefore|clearly|thus)\s+)?"
    rf"(?:the\s+)?(?:correct|right|best)\b)"
)
_LEFT_OPEN = re.compile(
    rf"(?i:\b(?:if|whether|unless|neither|nor|not|or|and|that)\s+|\b[A-Z]\)?\s*[,/&]\s*)(?:{_NOUN}\s+)?{_OPEN}\Z"
)
_AND_ANOTHER = re.compile(
    rf"{_CLOSE}(?:\s*+(?:[,/;&、]|\b(?i:or|and)\b|[或和])\s*+(?:(?i:or|and)\s+)?|[^\S\n]+)"
    rf"{_OPEN}(?:{_NOUN}\s+)?{_BARE}(?!{_CLOSE}\s+(?i:is|was|are|isn't|would|can|cannot|does)\b)"
)
_LABEL = re.compile(r"(?:(?<=\s)|\A)\(?([A-Z])[).:](?=\s)(?!\s+(?:is|was|are|and|or|would|can)\b)")
_GIVES_A_REASON = re.compile(
    r"(?i)\b(?:because|since|as|while|whereas|but|rather|than|unlike|instead|not|wrong|incorrect)\b"
)
# "B", "(b)." and "**Option B**": nothing else on the line
_ALONE = re.compile(rf"{_OPEN}(?:{_NOUN}\b{_OPEN})?([A-Za-z])[\s.)\]}}*_\"'`$]*+")
_LEADING = re.compile(
    rf"{_OPEN}(?:{_NOUN}\b{_OPEN})?([A-Z](?=[).:,\]*]|\s+(?:because|since)\b)|[a-z](?=\)))"
)
_LEADING_WORD = re.compile(rf"{_OPEN}([B-HJ-Z])\s")
_LIST_CHARS = 300


def chosen_letter(text: str) -> str | None:
    r"""The capital letter a text decides on; None when it names none, or leaves it open.

    The first of these that is there: the last ``<answer>``, the last
    ``\boxed{}``, the last statement ("answer is X", "answer: X", "choose X", "X is correct"), a
    text that begins with the letter as with a label, a last line that is nothing but a letter. The
    letter may be small or full-width, in brackets, bold or quotes, and be followed by the choice's
    text. A list of choices, "X or Y" and "not X" decide nothing.

    Reference:
        Hendrycks et al. 2021, MMLU (arXiv:2009.03300).

    >>> chosen_letter("<answer>(B) Paris</answer>"), chosen_letter("So the answer is **c**.")
    ('B', 'C')
    >>> [chosen_letter(f"The answer is {said}") for said in ("a dog", "A or B", "not B")]
    [None, None, None]
    """
    text = unicodedata.normalize("NFKC", text)
    answer = last_answer(text)
    if answer is not None:
        return letter_of(answer) or _decided(answer) or _leading(answer, _LEADING_WORD)
    box = last_boxed(text)
    if box is not None:
        return letter_of(box) or _decided(box) or _leading(box, _LEADING_WORD)
    return _decided(text)


def letter_of(text: str) -> str | None:
    """The capital letter of which `text` consists, in brackets or not; else None.

    >>> letter_of(" (b). "), letter_of("Option C"), letter_of("Paris")
    ('B', 'C', None)
    """
    alone = _ALONE.fullmatch(unicodedata.normalize("NFKC", text))
    return alone[1].upper() if alone else None


def _decided(text: str) -> str | None:
    stated = _last_stated(text)
    if stated is not None:
        return stated or None
    return letter_of(text) or _leading(text, _LEADING) or _own_line(text)


def _last_stated(text: str) -> str | None:
    """The letter of the last statement; empty where that leaves it open, None without one."""
    found: tuple[int, str] | None = None
    for stated in _STATED.finditer(text):
        choice = _CHOICE.match(text, stated.end())
        if choice:
            found = choice.end(), _single(text, choice)
    for right in _RIGHT.finditer(text):
        if (found is None or right.end() > found[0]) and not _LEFT_OPEN.search(
            text[max(right.start() - 30, 0) : right.start()]
        ):
            found = right.end(), right[1].upper()
    return found[1] if found else None


def _single(text: str, choice: re.Match[str]) -> str:
    """The letter in capitals; empty where others follow as if they were chosen, too."""
    if _AND_ANOTHER.match(text, choice.end(1)) or _begins_a_list(text, choice):
        return ""
    return choice[1].upper()


def _begins_a_list(text: str, choice: re.Match[str]) -> bool:
    """Whether the letter labels the first of several choices that are only listed."""
    after = text[choice.end(1) : choice.end(1) + _LIST_CHARS]
    if not after.startswith((")", ".", ":")):
        return False
    label = _LABEL.search(after, 1)
    if label is None or label[1] != chr(ord(choice[1].upper()) + 1):
        return False
    return not _GIVES_A_REASON.search(after[: label.start()])


def _leading(text: str, pattern: re.Pattern[str]) -> str | None:
    choice = pattern.match(text)
    return _single(text, choice) or None if choice else None


def _own_line(text: str) -> str | None:
    """The letter that is all of the last line, or of the first; not one of letters line by line."""
    lines = [letter_of(line) for line in text.splitlines() if line.strip()]
    ends = ((lines[-1], lines[-2]), (lines[0], lines[1])) if len(lines) > 1 else ()
    return next((own for own, neighbour in ends if own and not neighbour), None)
