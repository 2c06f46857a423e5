"""The option ``compat``: published scoring code, quirks included, for comparable runs.

The quirks: an answer that normalises to nothing equals a gold answer that does; Search-R1 reads
the prompt too and wants at least two answers in all; verl's rule for number words looks at the
last 300 characters only, and compares numbers as text.

References:
    Jin et al. 2025, Search-R1 (arXiv:2503.09516), `verl/utils/reward_score/{qa_em,gsm8k}.py`.
    verl 0.9.1, `verl/utils/reward_score/{search_r1_like_qa_em,gsm8k}.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from zerowait.scorers.answers import normalise, pairs
from zerowait.types import Sample, prompt_text

Compat: TypeAlias = Literal["verl", "search_r1"]

_HASHES = re.compile(r"#### (-?[0-9.,]+)")
_NUMBER = re.compile(r"-?[0-9.,]+")
_CLIP_CHARS = 300
_MANY_TAGS = 10


def published_text(sample: Sample, compat: Compat) -> str:
    """The text that the published rule reads: the response, in Search-R1 after its prompt."""
    if compat == "verl":
        return sample.response
    return prompt_text(sample.prompt) + sample.response


def published_answer(text: str, compat: Compat) -> str | None:
    """The last ``<answer>`` of `text`; in Search-R1 None unless there are at least two.

    >>> [published_answer("<answer>a</answer>", name) for name in ("verl", "search_r1")]
    ['a', None]
    """
    found = pairs(text, "<answer>", "</answer>")
    fewest = 2 if compat == "search_r1" else 1
    return found[-1].strip() if len(found) >= fewest else None


def published_em(answer: str, golds: Sequence[str]) -> bool:
    """Whether `answer` equals a gold answer in normal form, nothing and nothing included."""
    said = normalise(answer)
    return any(said == normalise(gold) for gold in golds)


def published_subem(answer: str, golds: Sequence[str]) -> bool:
    """Whether a gold answer is a substring of `answer`; one that normalises to nothing is."""
    said = normalise(answer)
    return any(normalise(gold) in said for gold in golds)


def em_share(text: str, compat: Compat) -> float:
    """The share of `score` that a right answer earns: verl pays a quarter for tag spam.

    >>> em_share("<answer>" * 11, "verl"), em_share("<answer>" * 10, "verl")
    (0.25, 1.0)
    """
    if compat != "verl":
        return 1.0
    tags = max(text.count("<answer>"), text.count("</answer>"))
    return 0.25 if tags > _MANY_TAGS else 1.0


def published_number(text: str, *, method: str, compat: Compat) -> str | None:
    """The number that the published gsm8k rule reads from `text`, as text; None without one.

    >>> published_number("#### 1,080", method="strict", compat="verl")
    '1080'
    >>> published_number("It is 72.", method="flexible", compat="verl")
    '72.'
    >>> published_number("#### 1 #### 2", method="strict", compat="search_r1")
    '1'
    """
    if compat == "verl":
        text = text[-_CLIP_CHARS:]
    if method == "strict":
        found = _HASHES.findall(text)
        if not found:
            return None
        chosen: str = found[0] if compat == "search_r1" else found[-1]
        return chosen.replace(",", "")
    numbers = _NUMBER.findall(text)
    last = next((number for number in reversed(numbers) if number != "."), None)
    return numbers[0] if numbers and last is None else last


def same_as_published(number: str, ground_truth: Any) -> bool:
    """Whether the texts are equal; a gold that is no text equals nothing."""
    return bool(number == ground_truth)
