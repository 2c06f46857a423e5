"""The scorer ``qa_em``: exact match of a short answer, as in SQuAD."""

from __future__ import annotations

from collections.abc import Sequence

from zerowait.scorers.answers import comparable, gold_texts, no_gold, shown
from zerowait.scorers.compat import (
    Compat,
    em_share,
    published_answer,
    published_em,
    published_text,
)
from zerowait.scorers.thinking import spoken_answer
from zerowait.types import Abstain, Sample, Score


def exact_match(answer: str, golds: Sequence[str]) -> bool:
    """Whether `answer` equals a gold answer after normalisation.

    A gold of which normalisation leaves nothing (``A``, ``++``) is compared as it is written,
    whatever its case.

    Reference:
        Rajpurkar et al. 2016, SQuAD (arXiv:1606.05250).

    >>> exact_match("The Eiffel Tower.", ["tour Eiffel", "eiffel tower"])
    True
    >>> exact_match("a", ["A"]), exact_match("!!", ["The"])
    (True, False)
    """
    pairs = (comparable(answer, gold) for gold in golds)
    return any(said == wanted != "" for said, wanted in pairs)


def qa_em(
    sample: Sample,
    *,
    score: float = 1.0,
    format_score: float = 0.0,
    compat: Compat | None = None,
) -> Score | Abstain:
    """`score` when the response's last ``<answer>`` is a gold answer, else `format_score`.

    A response without an answer outside of its thinking is worth 0.

    Args:
        sample: its response is compared with its ground truth.
        score: of a right answer.
        format_score: of a wrong answer.
        compat: score as this published code does.

    >>> qa_em(Sample("", "<answer>the Paris</answer>", ["Paris"])).value
    1.0
    """
    golds = gold_texts(sample.ground_truth)
    if not golds:
        return no_gold(sample.ground_truth)
    if compat is not None:
        return _published(sample, golds, score=score, format_score=format_score, compat=compat)
    answer = spoken_answer(sample)
    if answer is None:
        return Score(0.0, "no <answer>…</answer> in the response")
    right = exact_match(answer, golds)
    return Score(score if right else format_score, f"answered {shown(answer)}")


def _published(
    sample: Sample, golds: Sequence[str], *, score: float, format_score: float, compat: Compat
) -> Score:
    text = published_text(sample, compat)
    answer = published_answer(text, compat)
    if answer is None:
        return Score(0.0, f"no answer by the rule of {compat}")
    right = published_em(answer, golds)
    value = score * em_share(text, compat) if right else format_score
    return Score(value, f"answered {shown(answer)}")
