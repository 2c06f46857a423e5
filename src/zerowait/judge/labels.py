"""Names for responses that are shown together, which none of them can know.

A policy that is judged against its siblings learns to say "the first response is the better one".
So a response has no number: it has a label made from everything that is shown, which depends on
siblings that its author has not seen, and which occurs in none of the texts.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import sha256
from itertools import count

LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
"""Without vowels, so that no label is a word of any text."""
LENGTH = 4
_TURNS_PER_LENGTH = 1000  # a text that holds so many labels may hold all: the next are longer


def labels_for(texts: Collection[str]) -> list[str]:
    """As many different labels as there are texts, none of which occurs in any of them.

    They depend on the set of the texts and not on its order: who is shown first gets the first
    label, so that two requests that show the same in both orders differ in nothing else.

    >>> labels_for(["4", "5"]) == labels_for(["5", "4"])
    True
    """
    digests = sorted(sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts)
    seed = sha256(b"".join(digests))
    folded = [text.casefold() for text in texts]
    labels: list[str] = []
    for turn in count():
        if len(labels) == len(texts):
            return labels
        length = LENGTH + turn // _TURNS_PER_LENGTH
        draw = seed.copy()
        draw.update(b"%d" % turn)
        label = "".join(LETTERS[byte % len(LETTERS)] for byte in draw.digest()[:length])
        if label not in labels and not any(label.casefold() in text for text in folded):
            labels.append(label)
    raise AssertionError  # pragma: no cover - count() has no end
