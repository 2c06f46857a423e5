"""Words of a text in any script, as they are indexed and asked for.

Chinese, Japanese, Korean, Thai and other scripts that put no space between words, or hang endings
on them, are cut into pairs of neighbouring characters: a query then shares pairs with the documents
that contain it, wherever their words begin.

Reference:
    Manning et al. 2008, Introduction to Information Retrieval, section 2.2.1 (k-grams).
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache
from itertools import pairwise
from typing import Final

_STOPPED: Final = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then "
    "there these they this to was will with"
)
_STOP_WORDS: Final = frozenset(_STOPPED.split())
_SHORTEST = 2
_ASCII_WORD = re.compile(r"\w\w+")
# Han and its marks, kana, Hangul; pairs, and single characters in documents.
_IDEOGRAPHS = (
    "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u1100-\u11ff\uac00-\ud7a3"
)
# Thai, Lao, Myanmar, Khmer, with their vowel signs; pairs alone, a single one says too little.
_RUNNING = "\u0e01-\u0e4f\u0e81-\u0ece\u0edc-\u0edf\u1000-\u109d\u1780-\u17d3\uaa60-\uaa7f"
_UNSPACED = re.compile(f"[{_IDEOGRAPHS}]+|[{_RUNNING}]+|[^{_IDEOGRAPHS}{_RUNNING}]+")
_HAS_UNSPACED = re.compile(f"[{_IDEOGRAPHS}{_RUNNING}]")
_IS_IDEOGRAPH = re.compile(f"[{_IDEOGRAPHS}]")
# Characters that may stand within a word and change nothing about it: joiners, soft hyphens,
# variation selectors.
_UNSEEN = re.compile("[\u00ad\u200c\u200d\u2060\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]")


def words_of(text: str) -> list[str]:
    """The words of a document, repeats included, in small letters and without stop words.

    Words have two letters or more, combining marks included.

    >>> words_of("The Capital of Peru"), words_of("iPhone手机")
    (['capital', 'peru'], ['iphone', '手', '机', '手机'])
    """
    return _words(text, singles=True)


def words_asked(text: str) -> list[str]:
    """The words of a query: as `words_of`, and a character alone only where it has no neighbour.

    >>> words_asked("北京大学 茶")
    ['北京', '京大', '大学', '茶']
    """
    return _words(text, singles=False)


def _words(text: str, *, singles: bool) -> list[str]:
    if text.isascii():
        found = _ASCII_WORD.findall(text.lower())
    else:
        text = _UNSEEN.sub("", unicodedata.normalize("NFKC", text)).lower()
        found = _word().findall(text)
        if _HAS_UNSPACED.search(text):
            found = [word for run in found for word in _cut(run, singles=singles)]
        else:
            found = [word for word in found if len(word) >= _SHORTEST]
    return [word for word in found if word not in _STOP_WORDS]


def _cut(run: str, *, singles: bool) -> list[str]:
    """A run of letters, in which scripts may be mixed, as words and pairs."""
    found = []
    for part in _UNSPACED.findall(run):
        if not _HAS_UNSPACED.match(part):
            found += [part] if len(part) >= _SHORTEST else []
            continue
        if len(part) == 1 or (singles and _IS_IDEOGRAPH.match(part)):
            found += part
        found += map("".join, pairwise(part))
    return found


@cache
def _word() -> re.Pattern[str]:
    r"""Letters, digits and the marks that belong to them, which ``\w`` alone would split at."""
    marks = [
        chr(code)
        for code in range(sys.maxunicode // 8)
        if unicodedata.category(chr(code)) in {"Mn", "Mc", "Me"}
    ]
    return re.compile(rf"\w+(?:[{''.join(marks)}]+\w*)*")
