"""Comparisons by the fake judge: the labelled responses of a request and their order."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

Prefers: TypeAlias = Literal["better", "first", "last"]

_SHOWN = re.compile(
    r"<<<BEGIN RESPONSE (?P<label>[A-Z]+) (?P<code>[0-9a-f]{16})>>>\n(?P<text>.*?)\n"
    r"<<<END RESPONSE (?P=label) (?P=code)>>>",
    re.DOTALL,
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


class LabelledResponse(NamedTuple):
    """A response that a request compares with others."""

    label: str
    text: str


def compared_responses(messages: Sequence[Mapping[str, Any]]) -> list[LabelledResponse]:
    """The labelled responses of a request in their order; empty for fewer than two."""
    contents = (message.get("content") for message in messages)
    found = [
        LabelledResponse(match["label"], match["text"])
        for content in contents
        if isinstance(content, str) and "<<<BEGIN RESPONSE " in content
        for match in _SHOWN.finditer(content)
    ]
    return found if len(found) > 1 else []


def preference_order(responses: Sequence[LabelledResponse], prefers: Prefers) -> list[str]:
    """The labels of `responses`, the best first.

    Args:
        responses: of the request, in its order.
        prefers: ``better`` orders by the last number in each text (a hash of the text without
            one), ties by position; ``first`` and ``last`` order by position alone.

    >>> three, seven = LabelledResponse("KTRV", "It is 3."), LabelledResponse("BXMD", "It is 7.")
    >>> preference_order([three, seven], "better")
    ['BXMD', 'KTRV']
    """
    if prefers == "better":
        responses = sorted(responses, key=lambda response: _quality(response.text), reverse=True)
    labels = [response.label for response in responses]
    return labels[::-1] if prefers == "last" else labels


def ranking_text(labels: Sequence[str]) -> str:
    """The verdict for this order of labels, as a pair or as a ranking.

    >>> ranking_text(["BXMD", "KTRV"]), ranking_text(["BXMD", "WLQZ", "KTRV"])
    ('Verdict: BXMD', 'Ranking: BXMD > WLQZ > KTRV')
    """
    return f"Verdict: {labels[0]}" if len(labels) == 2 else f"Ranking: {' > '.join(labels)}"


def _quality(text: str) -> float:
    """The last number in a text; without one a hash of it in [0, 1)."""
    numbers = _NUMBER.findall(text)
    if numbers:
        return float(numbers[-1])
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") / 2**32
