"""The fake judge before several labelled responses: which of them it prefers."""

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


class Shown(NamedTuple):
    """One of the responses that a request compares."""

    label: str
    text: str


def compared(messages: Sequence[Mapping[str, Any]]) -> list[Shown]:
    """The responses that a request compares, in the order in which it shows them.

    Empty for a request that shows one response or none.
    """
    contents = (message.get("content") for message in messages)
    found = [
        Shown(match["label"], match["text"])
        for content in contents
        if isinstance(content, str) and "<<<BEGIN RESPONSE " in content
        for match in _SHOWN.finditer(content)
    ]
    return found if len(found) > 1 else []


def preferred(shown: Sequence[Shown], prefers: Prefers) -> list[str]:
    """The labels of `shown`, the best first.

    Better is who has the greater last number in it (where there is none, one that its text
    decides); of equals, who is shown first.

    >>> preferred([Shown("KTRV", "It is 3."), Shown("BXMD", "It is 7.")], "better")
    ['BXMD', 'KTRV']
    """
    if prefers == "better":
        shown = sorted(shown, key=lambda response: _quality(response.text), reverse=True)
    labels = [response.label for response in shown]
    return labels[::-1] if prefers == "last" else labels


def order_text(labels: Sequence[str]) -> str:
    """The verdict that puts `labels` in this order, in the form that a comparison asks for.

    >>> order_text(["BXMD", "KTRV"]), order_text(["BXMD", "WLQZ", "KTRV"])
    ('Verdict: BXMD', 'Ranking: BXMD > WLQZ > KTRV')
    """
    return f"Verdict: {labels[0]}" if len(labels) == 2 else f"Ranking: {' > '.join(labels)}"


def _quality(text: str) -> float:
    numbers = _NUMBER.findall(text)
    if numbers:
        return float(numbers[-1])
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") / 2**32
