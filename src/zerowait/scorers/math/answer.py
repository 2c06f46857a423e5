"""The scorer ``math``: compares answers by their mathematical value, however they are written."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from zerowait.scorers.answers import gold_texts, last_answer, no_gold, shown
from zerowait.scorers.boxed import last_boxes
from zerowait.scorers.math.formula import (
    Formula,
    answer_in_tags,
    are_equal,
    find_formula,
    is_undefined,
    read_formula,
)
from zerowait.scorers.thinking import spoken
from zerowait.types import Abstain, FailureKind, Sample, Score

Extraction: TypeAlias = Literal["boxed", "last", "any"]

# What data frames write where there is nothing; a product of n, a and n to a parser.
_NOTHING = re.compile(r"\s*(?:nan|none|null|n/?a)\s*", re.IGNORECASE)


def answer_formula(response: str, extraction: Extraction = "last") -> Formula | None:
    r"""The formula that a response gives as its answer; None when there is none to be read.

    Args:
        response: the text.
        extraction: ``boxed``: the last ``\boxed{…}`` and nothing else. ``last``: that, or without
            one the last ``<answer>``, or what follows the words "answer is", or the last formula
            or number. ``any``: the same, and where the last candidate cannot be read, earlier ones.

    >>> answer_formula(r"so \boxed{\frac12}").key
    '\\frac12'
    >>> answer_formula("The answer is 42.", "boxed") is None
    True
    """
    box = last_boxes(response)
    if box is not None:
        found = read_formula(box)
        if found is not None or extraction != "any":
            return found
    if extraction == "boxed":
        return None
    answer = last_answer(response)
    if answer is not None:
        return answer_in_tags(answer)
    return find_formula(response, several=extraction == "any")


def math_answer(
    sample: Sample,
    *,
    extraction: Extraction = "last",
    decimals: int = 6,
    score: float = 1.0,
    format_score: float = 0.0,
) -> Score | Abstain:
    r"""`score` when the response's answer equals a gold one, `format_score` for another formula.

    A response without a readable answer outside of its thinking is worth 0.

    Args:
        sample: its ground truth is a number, a formula in LaTeX or plain text, words, a worked
            solution that ends in ``\boxed{…}``, or a list of those. One without a value (1/0) does
            not count; one that cannot be read equals the same text, and abstains on others.
        extraction: which answer of the response counts, see `answer_formula`.
        decimals: significant digits from which on a rounded decimal fraction counts as right.
        score: of a right answer.
        format_score: of another formula.

    Numbers that are too large to be compared soon are refused. The engine runs this scorer in
    another process, which it ends at the deadline. Needs the extra ``math``.

    >>> math_answer(Sample("", r"\boxed{0.5}", r"\frac{1}{2}")).value
    1.0
    """
    golds = _gold_formulas(sample)
    if isinstance(golds, Abstain):
        return golds
    try:
        said = answer_formula(spoken(sample), extraction)
        outcome = _judged(golds, said, decimals)
    except Exception as error:  # noqa: BLE001 - what a response wrote is no crash of ours
        why = f"comparing the answer raised {type(error).__name__}: {error}"
        return Abstain(FailureKind.UNPARSEABLE, why[:300])
    match outcome:
        case True, why:
            return Score(score, why)
        case False, why:
            return Score(format_score, why)
        case None, why:
            return Score(0.0, why)
    return no_gold(sample.ground_truth, wanted="a formula")


def _judged(
    golds: list[Formula], said: Formula | None, decimals: int
) -> tuple[bool | None, str] | None:
    """Whether an answer is right, None where it is none, and why; None where no gold can tell."""
    if said is None:
        return None, "no answer that can be read"
    if is_undefined(said):
        return None, f"{shown(said.text)} has no value"
    if any(are_equal(gold, said, decimals=decimals) for gold in golds):
        return True, f"answered {shown(said.text)}"
    if not said.readings:
        return None, f"{shown(said.text)} cannot be read"
    if any(gold.readings or gold.is_wordy for gold in golds):
        return False, f"answered {shown(said.text)}"
    return None


def _gold_formulas(sample: Sample) -> list[Formula] | Abstain:
    """Every gold that is a text at all and has a value, or the abstention where none is."""
    texts = [text for text in gold_texts(sample.ground_truth) if not _NOTHING.fullmatch(text)]
    boxes = [last_boxes(text) for text in texts]
    whole = [text if box is None else box for text, box in zip(texts, boxes, strict=True)]
    found = [each for text in whole if (each := read_formula(text, is_gold=True)) is not None]
    defined = [formula for formula in found if not is_undefined(formula)]
    wanted = "a formula that has a value" if found else "a formula"
    return defined or no_gold(sample.ground_truth, wanted=wanted)
