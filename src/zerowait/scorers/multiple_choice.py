"""The letter chosen in a multiple-choice question."""

from __future__ import annotations

from zerowait.scorers.choice import chosen_letter, letter_of
from zerowait.scorers.gold import no_gold
from zerowait.scorers.thinking import spoken
from zerowait.types import Abstain, Sample, Score


def multiple_choice(
    sample: Sample, *, score: float = 1.0, format_score: float = 0.0
) -> Score | Abstain:
    """`score` when the response chooses the gold letter, `format_score` for another letter.

    A response without a choice, or with several, is worth 0. The gold is a letter, alone or as in
    ``(B)``.

    >>> multiple_choice(Sample("", "The answer is (B).", "B")).value
    1.0
    """
    truth = sample.ground_truth
    gold = letter_of(truth) if isinstance(truth, str) else None
    if gold is None:
        return no_gold(truth, wanted="the letter of a choice")
    letter = chosen_letter(spoken(sample))
    if letter is None:
        return Score(0.0, "the response chooses no single letter")
    return Score(score if letter == gold else format_score, f"chose {letter}")
