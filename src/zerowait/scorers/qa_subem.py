"""The scorer ``qa_subem``: a short answer that contains a gold answer."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from zerowait.scorers.answers import canonical, comparable, gold_texts, no_gold, shown
from zerowait.scorers.compat import Compat, published_answer, published_subem, published_text
from zerowait.scorers.contains import contains_phrase
from zerowait.scorers.thinking import spoken_answer
from zerowait.types import Abstain, Sample, Score


def substring_match(answer: str, golds: Sequence[str]) -> bool:
    """Whether `answer` contains a gold answer as whole words, after normalisation of both.

    A gold of which normalisation leaves nothing (``A``, ``++``) is looked for as it is written, but
    an article before a word is no match: "type A" contains the gold "A", and "a dog" does not.
    Scripts that put no space between words have no word edges.

    Reference:
        Jin et al. 2025, Search-R1 (arXiv:2503.09516).

    >>> substring_match("It is Paris, France", ["Paris"]), substring_match("Paris", ["The"])
    (True, False)
    >>> substring_match("a party", ["art"]), substring_match("type A", ["A"])
    (False, True)
    """
    return any(_contains(answer, gold) for gold in golds)


def qa_subem(
    sample: Sample,
    *,
    score: float = 1.0,
    format_score: float = 0.0,
    compat: Compat | None = None,
) -> Score | Abstain:
    """`score` when the response's last ``<answer>`` contains a gold answer, else `format_score`.

    A response without an answer outside of its thinking is worth 0.

    Args:
        sample: its response is compared with its ground truth.
        score: of a right answer.
        format_score: of a wrong answer.
        compat: score as this published code does.

    >>> qa_subem(Sample("", "<answer>It is Paris.</answer>", ["Paris"])).value
    1.0
    """
    golds = gold_texts(sample.ground_truth)
    if not golds:
        return no_gold(sample.ground_truth)
    if compat is None:
        answer = spoken_answer(sample)
        matches = substring_match
    else:
        answer = published_answer(published_text(sample, compat), compat)
        matches = published_subem
    if answer is None:
        return Score(0.0, "no answer in the response")
    right = matches(answer, golds)
    return Score(score if right else format_score, f"answered {shown(answer)}")


def _contains(answer: str, gold: str) -> bool:
    said, wanted = comparable(answer, gold)
    if canonical(gold) or not wanted.isalpha():
        return contains_phrase(said, wanted)
    return said == wanted != "" or any(map(_is_no_article, _occurrences(answer, gold)))


def _occurrences(answer: str, gold: str) -> Iterator[tuple[str, str, str]]:
    """Where `gold` occurs as a word: the two characters before it, the word, the text after it."""
    word = unicodedata.normalize("NFKC", gold).strip()
    text = " ".join(unicodedata.normalize("NFKC", answer).split())
    for found in re.finditer(rf"(?<!\w){re.escape(word)}(?![\w'\u2019])", text):
        yield text[max(found.start() - 2, 0) : found.start()], word, text[found.end() :]


def _is_no_article(occurrence: tuple[str, str, str]) -> bool:
    before, word, after = occurrence
    begins = not before.strip() or before.rstrip()[-1] in ".!?:"
    return not re.match(r" \w", after) or not (begins or word.islower())
