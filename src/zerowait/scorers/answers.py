"""Answers: the one in a response, the gold ones of a sample, and the form they are compared in."""

from __future__ import annotations

import math
import re
import string
import unicodedata
from collections.abc import Mapping
from typing import Any

from zerowait.types import Abstain, FailureKind

_OPEN = "<answer>"
_CLOSE = "</answer>"
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_SHOWN_CHARS = 80
_WITHIN = ("text", "value", "aliases", "answers")


def last_answer(response: str) -> str | None:
    """The content of the last complete ``<answer>…</answer>``, stripped; None without one.

    An opening tag that is never closed hides no earlier answer, and of nested tags the innermost
    pair counts.

    >>> last_answer("<answer>Rome</answer> no: <answer> Paris </answer> <answer>or")
    'Paris'
    >>> last_answer("<answer>Paris") is None
    True
    """
    end = len(response)
    while (start := response.rfind(_OPEN, 0, end)) >= 0:
        inside = start + len(_OPEN)
        close = response.find(_CLOSE, inside, end)
        if close >= 0:
            return response[inside:close].strip()
        end = start
    return None


def pairs(text: str, opening: str, closing: str) -> list[str]:
    """The texts between each opening mark and the first closing mark after it, in linear time.

    >>> pairs("<a>x</a> <a>y <a>z</a> <a>", "<a>", "</a>")
    ['x', 'y <a>z']
    """
    found, end = [], 0
    while (start := text.find(opening, end)) >= 0:
        close = text.find(closing, start + len(opening))
        if close < 0:
            break
        found.append(text[start + len(opening) : close])
        end = close + len(closing)
    return found


def normalise(text: str) -> str:
    """`text` in lower case without punctuation, the articles a, an, the, and extra white space.

    Reference:
        Rajpurkar et al. 2016, SQuAD (arXiv:1606.05250), evaluation script.

    >>> normalise("The  Eiffel-Tower, a. k. a. 'la Dame'!")
    'eiffeltower k la dame'
    """
    bare = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def canonical(text: str) -> str:
    r"""`text` normalised as by `normalise`, whatever Unicode characters it is written with.

    Full-width forms and combining marks become the plain character (NFKC); invisible characters
    (zero width, direction) and every script's punctuation are dropped.

    >>> canonical("\u201cPari\u0301s\u201d\u200b") == "par\xeds"
    True
    """
    return normalise(_without_marks(text))


def comparable(answer: str, gold: str) -> tuple[str, str]:
    """An answer and a gold answer in the form in which they are compared.

    That is `canonical`, unless it leaves nothing of the gold: an article or a mark can be the
    answer, such as the blood group "A" or the operator "++". Then articles are kept, and where
    still nothing is left, punctuation, too.

    >>> comparable("The Who", "the who!"), comparable("(a)", "A"), comparable("++", "++")
    (('who', 'who'), ('a', 'a'), ('++', '++'))
    """
    for form in (canonical, _with_articles, _squeezed):
        if wanted := form(gold):
            return form(answer), wanted
    return "", ""


def _with_articles(text: str) -> str:
    return _squeezed(_without_marks(text).translate(_NO_PUNCTUATION))


def _squeezed(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _without_marks(text: str) -> str:
    """`text` in compatible characters, without invisible ones and, beyond ASCII, punctuation."""
    if text.isascii():
        return text
    seen = unicodedata.normalize("NFKC", text)
    kinds = ((char, unicodedata.category(char)) for char in seen)
    return "".join(char for char, kind in kinds if kind != "Cf" and kind[0] != "P")


def shown(text: str) -> str:
    """`text` in quotes and short enough for one line of a log.

    >>> shown("Paris")
    "'Paris'"
    """
    return repr(text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 3]}...")


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
    """The abstention of a scorer that could not read the ground truth.

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
