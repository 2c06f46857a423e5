"""The scorer ``qa_f1``: word overlap of a short answer with a gold answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from zerowait.scorers.answers import comparable, gold_texts, no_gold, shown
from zerowait.scorers.thinking import spoken_answer
from zerowait.types import Abstain, Sample, Score


def token_f1(answer: str, golds: Sequence[str]) -> float:
    """The best F1 over the gold answers, in [0, 1], of the normalised words.

    A gold of which normalisation leaves nothing (``A``) is compared as it is written.

    Reference:
        Rajpurkar et al. 2016, SQuAD (arXiv:1606.05250).

    >>> token_f1("tower of Eiffel", ["the Eiffel Tower"])
    0.8
    """
    pairs = (comparable(answer, gold) for gold in golds)
    return max((_f1(said.split(), wanted.split()) for said, wanted in pairs), default=0.0)


def qa_f1(sample: Sample, *, score: float = 1.0) -> Score | Abstain:
    """`score` times the word F1 of the response's last ``<answer>``; 0 without one.

    An answer inside thinking tags does not count.

    >>> qa_f1(Sample("", "<answer>Paris, France</answer>", ["Paris"])).value
    0.6666666666666666
    """
    golds = gold_texts(sample.ground_truth)
    if not golds:
        return no_gold(sample.ground_truth)
    answer = spoken_answer(sample)
    if answer is None:
        return Score(0.0, "no <answer>…</answer> in the response")
    return Score(score * token_f1(answer, golds), f"answered {shown(answer)}")


def _f1(said: list[str], gold: list[str]) -> float:
    common = (Counter(said) & Counter(gold)).total()
    return 2 * common / (len(said) + len(gold)) if common else 0.0
