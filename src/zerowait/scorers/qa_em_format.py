"""The scorer ``qa_em_format``: exact match of an answer, and the order of a search agent's tags."""

from __future__ import annotations

import re
from typing import Final

from zerowait.scorers.answers import canonical, gold_texts, no_gold, shown
from zerowait.scorers.qa_em import exact_match
from zerowait.scorers.thinking import spoken_answer
from zerowait.types import Abstain, Sample, Score

_TAG: Final = re.compile(r"<(/?)(think|search|information|answer)>")
_FOUND: Final = re.compile(r"<information>(.*?)</information>", re.DOTALL)
# Which tag may open after which one has closed: think, then searches with what they found, and the
# answer last.
_NEXT: Final = {
    "": {"think"},
    "think": {"search", "answer"},
    "search": {"information"},
    "information": {"think"},
    "answer": set[str](),
}


def sequence_fault(response: str) -> str:
    """What is wrong with the order of a search agent's tags; empty when nothing is.

    Right is: think, then any number of search, information, think, then answer; every tag closed
    before the next one opens, and nothing but white space between them.

    Reference:
        Jin et al. 2025, An Empirical Study on Reinforcement Learning for Reasoning-Search
        Interleaved LLM Agents (arXiv:2505.15117), the format reward.

    >>> sequence_fault("<think>easy</think><answer>4</answer>")
    ''
    >>> sequence_fault("<think>?</think><search>q</search><answer>4</answer>")
    '<answer> stands after <search>'
    """
    last, open_tag, end = "", "", 0
    for tag in _TAG.finditer(response):
        closing, name = bool(tag[1]), tag[2]
        if closing != bool(open_tag) or (closing and name != open_tag):
            return f"<{tag[1]}{name}> stands where it does not belong"
        if closing:
            last, open_tag = open_tag, ""
        elif name not in _NEXT[last]:
            return f"<{name}> stands after <{last}>" if last else f"<{name}> comes first"
        elif response[end : tag.start()].strip():
            return f"there is text before <{name}>"
        else:
            open_tag = name
        end = tag.end()
    if open_tag:
        return f"<{open_tag}> is not closed"
    if last != "answer":
        return "there is no answer at the end"
    return "there is text after the answer" if response[end:].strip() else ""


def qa_em_format(
    sample: Sample,
    *,
    score: float = 1.0,
    structure_score: float = 0.2,
    final_score: float = 0.1,
    retrieval_score: float = 0.0,
) -> Score | Abstain:
    """Exact match of the last ``<answer>``, with a share for the order of the tags.

    An answer inside thinking tags does not count.

    Args:
        sample: its response is scored.
        score: of a right answer in the right order.
        structure_score: of the right order with a wrong answer; taken off `score` where the answer
            is right and the order wrong.
        final_score: of a wrong answer in the wrong order; 0 without any answer.
        retrieval_score: added to `structure_score` where an ``<information>`` block contains a gold
            answer.

    Reference:
        Jin et al. 2025 (arXiv:2505.15117); the defaults are Search-R1's.

    >>> right = "<think>hm</think><answer>Paris</answer>"
    >>> [qa_em_format(Sample("", text, "Paris")).value for text in (right, right[17:], "Paris")]
    [1.0, 0.8, 0.0]
    """
    golds = gold_texts(sample.ground_truth)
    if not golds:
        return no_gold(sample.ground_truth)
    fault = sequence_fault(sample.response)
    answer = spoken_answer(sample)
    said = f"answered {shown(answer)}" if answer is not None else "no answer"
    why = f"{said}; {fault}" if fault else said
    if answer is not None and exact_match(answer, golds):
        return Score(score - structure_score if fault else score, why)
    if fault:
        return Score(0.0 if answer is None else final_score, why)
    bonus = retrieval_score if _was_retrieved(sample.response, golds) else 0.0
    return Score(structure_score + bonus, why)


def _was_retrieved(response: str, golds: list[str]) -> bool:
    """Whether an ``<information>`` block contains a gold answer as whole words."""
    wanted = [f" {text} " for gold in golds if (text := canonical(gold))]
    found = [f" {canonical(block)} " for block in _FOUND.findall(response)]
    return any(gold in block for block in found for gold in wanted)
