"""The scorer ``multiple_choice``: the letter, or letters, that a response chooses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerowait.scorers.answers import no_gold
from zerowait.scorers.choice import chosen_letter, chosen_letters, letter_of, letters_of
from zerowait.scorers.thinking import spoken
from zerowait.types import Abstain, Sample, Score


def multiple_choice(
    sample: Sample, *, score: float = 1.0, format_score: float = 0.0
) -> Score | Abstain:
    """`score` when the response chooses the gold letter, `format_score` for another letter.

    A response without a choice is worth 0, and so is one that chooses several letters where the
    gold is one.

    Args:
        sample: its ground truth is a letter, alone or as in ``(B)``, or several (``["A", "C"]``,
            ``AC``, ``A and C``); of several, the response has to choose exactly these in any order.
        score: of the right choice.
        format_score: of a wrong choice.

    >>> multiple_choice(Sample("", "The answer is (B).", "B")).value
    1.0
    >>> multiple_choice(Sample("", "The answers are C and A.", "AC")).value
    1.0
    """
    golds = gold_letters(sample.ground_truth)
    if not golds:
        return no_gold(sample.ground_truth, wanted="the letter of a choice, or several")
    text = spoken(sample)
    if len(golds) > 1:
        chosen = chosen_letters(text)
    else:
        letter = chosen_letter(text)
        chosen = frozenset({letter}) if letter else frozenset()
    if not chosen:
        many = "letters" if len(golds) > 1 else "single letter"
        return Score(0.0, f"the response chooses no {many}")
    return Score(score if chosen == golds else format_score, f"chose {', '.join(sorted(chosen))}")


def gold_letters(ground_truth: Any) -> frozenset[str]:
    """The letters of a gold; none where it is not made of letters.

    >>> sorted(gold_letters(["a", "(C)"])), gold_letters("Paris")
    (['A', 'C'], frozenset())
    """
    if isinstance(ground_truth, str):
        return letters_of(ground_truth)
    if isinstance(ground_truth, Mapping):
        return gold_letters(ground_truth.get("target"))
    if hasattr(ground_truth, "tolist"):  # columns of Parquet files arrive as arrays
        return gold_letters(ground_truth.tolist())
    if not isinstance(ground_truth, list | tuple | set | frozenset):
        return frozenset()
    letters = [letter_of(each) if isinstance(each, str) else None for each in ground_truth]
    return frozenset(each for each in letters if each) if all(letters) else frozenset()
