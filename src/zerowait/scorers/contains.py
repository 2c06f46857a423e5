"""The scorer ``contains``: a gold answer anywhere in the response."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from zerowait.scorers.answers import gold_texts, no_gold, shown
from zerowait.scorers.thinking import spoken
from zerowait.types import Abstain, Sample, Score

_DECIMAL = re.compile(r"\d[.,]\d")
_UNSPACED = (
    ("\u0e00", "\u0eff"),  # Thai, Lao
    ("\u1000", "\u109f"),  # Burmese
    ("\u1780", "\u17ff"),  # Khmer
    ("\u3040", "\u30ff"),  # kana
    ("\u3400", "\u9fff"),  # ideographs
    ("\uac00", "\ud7a3"),  # Hangul
    ("\U00020000", "\U0010ffff"),  # rare ideographs
)


def contains_words(text: str, phrase: str) -> bool:
    """Whether `text` contains `phrase` as whole words; case and white space do not matter.

    A blank phrase is contained in no text. Scripts that put no space between words have no word
    edges, so that any occurrence counts.

    >>> contains_words("It is in New  York.", "new york"), contains_words("a party", "art")
    (True, False)
    >>> contains_words("答案是北京。", "北京")
    True
    """
    return contains_phrase(_squeezed(text), _squeezed(phrase))


def contains(sample: Sample, *, score: float = 1.0) -> Score | Abstain:
    """`score` when the response contains a gold answer as whole words, else 0.

    Text inside thinking tags does not count.

    >>> contains(Sample("", "The capital is Paris.", "paris")).value
    1.0
    """
    golds = gold_texts(sample.ground_truth)
    if not golds:
        return no_gold(sample.ground_truth)
    gold = _first_found(spoken(sample), golds)
    if gold is None:
        return Score(0.0, "no gold answer in the response")
    return Score(score, f"contains {shown(gold)}")


def _first_found(response: str, golds: Sequence[str]) -> str | None:
    text = _squeezed(response)
    return next((gold for gold in golds if contains_phrase(text, _squeezed(gold))), None)


def _squeezed(text: str) -> str:
    if not text.isascii():
        seen = unicodedata.normalize("NFKC", text)
        text = "".join(char for char in seen if unicodedata.category(char) != "Cf")
    return " ".join(text.casefold().split())


def contains_phrase(text: str, phrase: str) -> bool:
    """Whether `text` contains `phrase` as whole words; the caller has normalised both.

    >>> [contains_phrase("a party", phrase) for phrase in ("party", "art", "")]
    [True, False, False]
    """
    if not phrase:
        return False
    start = text.find(phrase)
    while start >= 0:
        end = start + len(phrase)
        if not (_is_cut(text, start) or _is_cut(text, end)):
            return True
        start = text.find(phrase, start + 1)
    return False


def _is_cut(text: str, at: int) -> bool:
    """Whether index `at` is inside of a word, or of a number."""
    left, right = text[max(at - 2, 0) : at], text[at : at + 2]
    if not (left and right):
        return False
    if left[-1].isalnum() and right[0].isalnum():
        return not (_unspaced(left[-1]) or _unspaced(right[0]))
    return bool(_DECIMAL.fullmatch(left[-1] + right) or _DECIMAL.fullmatch(left + right[0]))


def _unspaced(char: str) -> bool:
    """Whether the script of `char` sets words without spaces, or endings to them (Korean)."""
    return any(first <= char <= last for first, last in _UNSPACED)
