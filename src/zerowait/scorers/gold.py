"""The gold answers of a sample, in whatever form its data set keeps them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from zerowait.types import Abstain, FailureKind

_WITHIN = ("text", "value", "aliases", "answers")


def gold_texts(ground_truth: Any) -> list[str]:
    """The gold answers as texts; empty when there is none, or none can be read.

    A gold answer is a text, a number, a list (or array) of those, or a mapping that keeps them
    under ``target`` (Search-R1), ``text`` (SQuAD), ``value`` and ``aliases`` (TriviaQA) or
    ``answers``; a list may hold such mappings, too. Blank texts and None are no answers; anything
    else makes the whole gold unreadable.

    >>> gold_texts({"target": ["Paris", "City of Light"]})
    ['Paris', 'City of Light']
    >>> gold_texts([{"text": "Paris", "answer_start": 3}])
    ['Paris']
    >>> gold_texts(42), gold_texts([" ", None]), gold_texts([{"a": 1}])
    (['42'], [], [])
    """
    if isinstance(ground_truth, str):
        return [ground_truth] if ground_truth.strip() else []
    if isinstance(ground_truth, int | float):
        return _texts_of([ground_truth])
    if isinstance(ground_truth, Mapping):
        return _texts_within(ground_truth)
    if hasattr(ground_truth, "tolist"):  # columns of Parquet files arrive as arrays
        return gold_texts(ground_truth.tolist())
    if isinstance(ground_truth, list | tuple | set | frozenset):
        return _texts_of(list(ground_truth))
    return []


def no_gold(ground_truth: Any, *, wanted: str = "an answer") -> Abstain:
    """The abstention of a scorer that could not read its gold.

    >>> no_gold(None).detail
    'ground_truth is missing; expected an answer'
    """
    if ground_truth is None:
        return Abstain(FailureKind.BAD_INPUT, f"ground_truth is missing; expected {wanted}")
    found = repr(ground_truth)
    shown = found if len(found) <= 80 else f"{found[:77]}..."
    return Abstain(FailureKind.BAD_INPUT, f"ground_truth is {shown}; expected {wanted}")


def _texts_within(gold: Mapping[Any, Any]) -> list[str]:
    names = ("target",) if "target" in gold else [name for name in _WITHIN if name in gold]
    return _texts_of([gold[name] for name in names])


def _texts_of(golds: list[Any]) -> list[str]:
    texts: list[str] = []
    for item in golds:
        gold = item.tolist() if hasattr(item, "tolist") else item
        if _is_blank(gold):
            continue
        nested = isinstance(gold, Mapping | list | tuple)
        found = gold_texts(gold) if nested else _text_of(gold)
        if not found:
            return []
        texts += found
    return texts


def _is_blank(gold: Any) -> bool:
    empty = isinstance(gold, list | tuple) and not gold
    return gold is None or empty or (isinstance(gold, str) and not gold.strip())


def _text_of(gold: Any) -> list[str]:
    """A single gold answer as text: 42.0 reads as 42, a truth value is no answer."""
    if isinstance(gold, str):
        return [gold]
    if isinstance(gold, bool) or not isinstance(gold, int | float) or not math.isfinite(gold):
        return []
    return [str(int(gold)) if gold == int(gold) else str(gold)]
