"""A gold answer anywhere in the response."""

from __future__ import annotations

from collections.abc import Sequence

from zerowait.scorers.answer import shown
from zerowait.scorers.gold import gold_texts, no_gold
from zerowait.types import Abstain, Sample, Score


def contains_words(text: str, phrase: str) -> bool:
    """Whether `phrase` stands in `text` as whole words; case and white space do not matter.

    A blank phrase is contained in no text. Scripts that put no space between words have no word
    edges, so that any occurrence counts.

    >>> contains_words("It is in New  York.", "new york"), contains_words("a party", "art")
    (True, False)
    >>> contains_words("答案是北京。", "北京")
    True
    """
    return _stands_in(_squeezed(text), _squeezed(phrase))


def contains(sample: Sample, *, score: float = 1.0) -> Score | Abstain:
    """`score` when the response contains a gold answer as whole words, else 0.

    >>> contains(Sample("", "The capital is Paris.", "paris")).value
    1.0
    """
    golds = gold_texts(sample.ground_truth)
    if not golds:
        return no_gold(sample.ground_truth)
    gold = _first_found(sample.response, golds)
    if gold is None:
        return Score(0.0, "no gold answer in the response")
    return Score(score, f"contains {shown(gold)}")


def _first_found(response: str, golds: Sequence[str]) -> str | None:
    text = _squeezed(response)
    return next((gold for gold in golds if _stands_in(text, _squeezed(gold))), None)


def _squeezed(text: str) -> str:
    return " ".join(text.casefold().split())


def _stands_in(text: str, phrase: str) -> bool:
    if not phrase:
        return False
    start = text.find(phrase)
    while start >= 0:
        end = start + len(phrase)
        cut_before = start > 0 and _one_word(text[start - 1], phrase[0])
        cut_after = end < len(text) and _one_word(phrase[-1], text[end])
        if not (cut_before or cut_after):
            return True
        start = text.find(phrase, start + 1)
    return False


def _one_word(left: str, right: str) -> bool:
    """Whether the two neighbours belong to one word."""
    return left.isalnum() and right.isalnum() and not (_unspaced(left) or _unspaced(right))


def _unspaced(char: str) -> bool:
    """Whether the script of `char` writes words without spaces: kana and ideographs."""
    return "\u3040" <= char <= "\u30ff" or "\u3400" <= char <= "\u9fff" or char >= "\U00020000"
