"""The letter chosen in a multiple-choice question."""

from __future__ import annotations

import re
from typing import Any

from zerowait.scorers.answer import last_answer
from zerowait.scorers.gold import no_gold
from zerowait.types import Abstain, Sample, Score

_BOXED = re.compile(r"\\boxed\{\s*+(?:\\text\w*\{\s*+)?\(?([A-Z])\)?\s*\}")
_ANSWER_IS = re.compile(r"(?i:answer)\**\s*(?:(?i:is)\b|[:=])[\s:*(\[]*([A-Z])(?![\w'])")
# "A dog" and "I think" are texts, "B Paris" is a choice.
_LEADING = re.compile(r"[\s*(\[]*([A-Z])(?:[.):,\]*]|\s*$|(?<![AI])\s)")
_LETTER = re.compile(r"[\s*(\[]*([A-Za-z])[\s.):\]*]*")


def chosen_letter(response: str) -> str | None:
    r"""The capital letter a response decides on; None when it names none.

    The first of these that is there: the last ``<answer>``, the last ``\boxed{}``, the last
    "answer is X" or "answer: X", a response that is nothing but a letter. The letter may stand in
    parentheses or bold and be followed by the choice's text.

    Reference:
        Hendrycks et al. 2021, MMLU (arXiv:2009.03300).

    >>> chosen_letter("<answer>(B) Paris</answer>"), chosen_letter("So the answer is **C**.")
    ('B', 'C')
    >>> chosen_letter("The answer is a dog") is None
    True
    """
    answer = last_answer(response)
    if answer is not None:
        return _letter_in(answer)
    for pattern in (_BOXED, _ANSWER_IS):
        letters = pattern.findall(response)
        if letters:
            return str(letters[-1])
    alone = _LETTER.fullmatch(response)
    return alone[1].upper() if alone else None


def multiple_choice(
    sample: Sample, *, score: float = 1.0, format_score: float = 0.0
) -> Score | Abstain:
    """`score` when the response chooses the gold letter, `format_score` for another letter.

    A response without a choice is worth 0. The gold is a letter, alone or as in ``(B)``.

    >>> multiple_choice(Sample("", "The answer is (B).", "B")).value
    1.0
    """
    gold = _gold_letter(sample.ground_truth)
    if gold is None:
        return no_gold(sample.ground_truth, wanted="the letter of a choice")
    letter = chosen_letter(sample.response)
    if letter is None:
        return Score(0.0, "the response chooses no letter")
    return Score(score if letter == gold else format_score, f"chose {letter}")


def _letter_in(answer: str) -> str | None:
    alone = _LETTER.fullmatch(answer)
    if alone:
        return alone[1].upper()
    for pattern in (_BOXED, _ANSWER_IS):
        letters = pattern.findall(answer)
        if letters:
            return str(letters[-1])
    leading = _LEADING.match(answer)
    return leading[1] if leading else None


def _gold_letter(ground_truth: Any) -> str | None:
    if not isinstance(ground_truth, str):
        return None
    found = _LETTER.fullmatch(ground_truth)
    return found[1].upper() if found else None
