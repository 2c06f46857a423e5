"""Tokenization for BM25: the terms of documents and queries in any script.

Chinese, Japanese, Korean, Thai and other scripts without spaces between words are split into
character bigrams, so that a query shares bigrams with the documents that contain it.

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

_STOP_WORD_TEXT: Final = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then "
    "there these they this to was will with"
)
_STOP_WORDS: Final = frozenset(_STOP_WORD_TEXT.split())
_SHORTEST = 2
_ASCII_WORD = re.compile(r"\w\w+")
# Han and its marks, kana, Hangul: bigrams, and single characters in documents.
_IDEOGRAPHS = (
    "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u1100-\u11ff\uac00-\ud7a3"
)
# Thai, Lao, Myanmar, Khmer, with their vowel signs: bigrams only.
_RUNNING = "\u0e01-\u0e4f\u0e81-\u0ece\u0edc-\u0edf\u1000-\u109d\u1780-\u17d3\uaa60-\uaa7f"
_UNSPACED = re.compile(f"[{_IDEOGRAPHS}]+|[{_RUNNING}]+|[^{_IDEOGRAPHS}{_RUNNING}]+")
_HAS_UNSPACED = re.compile(f"[{_IDEOGRAPHS}{_RUNNING}]")
_IS_IDEOGRAPH = re.compile(f"[{_IDEOGRAPHS}]")
# Characters inside a word that do not change it: joiners, soft hyphens, variation selectors.
_INVISIBLE = re.compile("[\u00ad\u200c\u200d\u2060\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]")


def document_terms(text: str) -> list[str]:
    """The terms of a document: lower-case, without stop words, repeats included.

    A term has two characters or more, combining marks included.

    >>> document_terms("The Capital of Peru"), document_terms("iPhone手机")
    (['capital', 'peru'], ['iphone', '手', '机', '手机'])
    """
    return _terms(text, single_characters=True)


def query_terms(text: str) -> list[str]:
    """The terms of a query: as `document_terms`, but single ideographs only where alone.

    >>> query_terms("北京大学 茶")
    ['北京', '京大', '大学', '茶']
    """
    return _terms(text, single_characters=False)


def _terms(text: str, *, single_characters: bool) -> list[str]:
    if text.isascii():
        found = _ASCII_WORD.findall(text.lower())
    else:
        text = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text)).lower()
        found = _word_pattern().findall(text)
        if _HAS_UNSPACED.search(text):
            found = [
                word
                for run in found
                for word in _split_run(run, single_characters=single_characters)
            ]
        else:
            found = [word for word in found if len(word) >= _SHORTEST]
    return [word for word in found if word not in _STOP_WORDS]


def _split_run(run: str, *, single_characters: bool) -> list[str]:
    """A run of letters, possibly of several scripts, as words and bigrams."""
    found = []
    for part in _UNSPACED.findall(run):
        if not _HAS_UNSPACED.match(part):
            found += [part] if len(part) >= _SHORTEST else []
            continue
        if len(part) == 1 or (single_characters and _IS_IDEOGRAPH.match(part)):
            found += part
        found += map("".join, pairwise(part))
    return found


@cache
def _word_pattern() -> re.Pattern[str]:
    r"""Pattern of a word with its combining marks, at which ``\w`` alone would split."""
    marks = [
        chr(code)
        for code in range(sys.maxunicode // 8)
        if unicodedata.category(chr(code)) in {"Mn", "Mc", "Me"}
    ]
    return re.compile(rf"\w+(?:[{''.join(marks)}]+\w*)*")
