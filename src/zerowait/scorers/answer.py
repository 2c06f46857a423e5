"""The answer inside a response, and the form in which short answers are compared."""

from __future__ import annotations

import re
import string
import unicodedata

_OPEN = "<answer>"
_CLOSE = "</answer>"
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_SHOWN_CHARS = 80


def last_answer(response: str) -> str | None:
    """What stands in the last complete ``<answer>…</answer>``, stripped; None when there is none.

    An opening tag that is never closed hides no earlier answer, and of nested tags the innermost
    pair counts.

    >>> last_answer("<answer>Rome</answer> no: <answer> Paris </answer> <answer>or")
    'Paris'
    >>> last_answer("<answer>Paris") is None
    True
    """
    end = len(response)
    while (start := response.rfind(_OPEN, 0, end)) >= 0:
        inside = start + len(_OPEN)
        close = response.find(_CLOSE, inside, end)
        if close >= 0:
            return response[inside:close].strip()
        end = start
    return None


def pairs(text: str, opening: str, closing: str) -> list[str]:
    """What stands between each opening mark and the first closing one after it, in one pass.

    >>> pairs("<a>x</a> <a>y <a>z</a> <a>", "<a>", "</a>")
    ['x', 'y <a>z']
    """
    found, end = [], 0
    while (start := text.find(opening, end)) >= 0:
        close = text.find(closing, start + len(opening))
        if close < 0:
            break
        found.append(text[start + len(opening) : close])
        end = close + len(closing)
    return found


def normalise(text: str) -> str:
    """`text` in lower case without punctuation, the articles a, an, the, and extra white space.

    Reference:
        Rajpurkar et al. 2016, SQuAD (arXiv:1606.05250), evaluation script.

    >>> normalise("The  Eiffel-Tower, a. k. a. 'la Dame'!")
    'eiffeltower k la dame'
    """
    bare = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def canonical(text: str) -> str:
    r"""`text` as `normalise` has it, however its characters are spelt.

    Full-width forms and combining marks are one character with what they look like, characters
    that are not seen (zero width, direction) are none, and every script's punctuation goes.

    >>> canonical("\u201cPari\u0301s\u201d\u200b") == "par\xeds"
    True
    """
    return normalise(_without_marks(text))


def comparable(answer: str, gold: str) -> tuple[str, str]:
    """An answer and a gold answer in the form in which they are compared.

    That is `canonical`, unless it leaves nothing of the gold: an article or a mark can be the
    answer, such as the blood group "A" or the operator "++". Then articles are kept, and where
    still nothing is left, punctuation, too.

    >>> comparable("The Who", "the who!"), comparable("(a)", "A"), comparable("++", "++")
    (('who', 'who'), ('a', 'a'), ('++', '++'))
    """
    for form in (canonical, _with_articles, _squeezed):
        if wanted := form(gold):
            return form(answer), wanted
    return "", ""


def _with_articles(text: str) -> str:
    return _squeezed(_without_marks(text).translate(_NO_PUNCTUATION))


def _squeezed(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _without_marks(text: str) -> str:
    """`text` in compatible characters, without invisible ones and, beyond ASCII, punctuation."""
    if text.isascii():
        return text
    seen = unicodedata.normalize("NFKC", text)
    kinds = ((char, unicodedata.category(char)) for char in seen)
    return "".join(char for char, kind in kinds if kind != "Cf" and kind[0] != "P")


def shown(text: str) -> str:
    """`text` in quotes and short enough for one line of a log.

    >>> shown("Paris")
    "'Paris'"
    """
    return repr(text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 3]}...")
