"""Names for responses that are shown together, which none of them can know.

A policy that is judged against its siblings learns to say "the first response is the better one".
So a response has no number: it has a label made from everything that the request shows, siblings
included that its author has not seen, and no text of the request contains it. Neither does one with
other letters or marks between or around: a label is looked for in what is left of a text without
case, accents, styles and all that is no letter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from hashlib import sha256
from itertools import count
from unicodedata import normalize

LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
"""Without vowels, so that no label is a word of any text."""
LENGTH = 6
"""Letters of a label at least: 64 million of them, too many to be guessed."""
_TURNS_PER_LENGTH = 1000  # a text that holds so many labels may hold all: the next are longer
_NO_LETTERS = bytes(set(range(256)) - set(LETTERS.encode()) - set(b"AEIOUY"))


def labels_for(
    texts: Collection[str], *, beside: Iterable[str] = (), length: int = LENGTH
) -> list[str]:
    """As many different labels as there are texts, none of which any text of a request contains.

    They depend on the set of the texts and not on its order: who is shown first gets the first
    label, so that two requests that show the same in both orders differ in nothing else.

    Args:
        texts: those that get the labels.
        beside: whatever else the request shows, such as the prompt.
        length: letters of a label, at least.

    >>> labels_for(["4", "5"]) == labels_for(["5", "4"])
    True
    """
    seed = sha256()
    for group in (texts, beside := list(beside)):
        digests = sorted(sha256(text.encode("utf-8", "surrogatepass")).digest() for text in group)
        seed.update(sha256(b"".join(digests)).digest())
    shown = [letters_of(text) for text in (*texts, *beside)]
    labels: list[str] = []
    for turn in count():
        if len(labels) == len(texts):
            return labels
        draw = seed.copy()
        draw.update(b"%d" % turn)
        drawn = draw.digest()[: length + turn // _TURNS_PER_LENGTH]
        label = "".join(LETTERS[byte % len(LETTERS)] for byte in drawn)
        within = any(label in other or other in label for other in labels)
        if not within and not any(label in text for text in shown):
            labels.append(label)
    raise AssertionError  # pragma: no cover - count() has no end


def letters_of(text: str) -> str:
    r"""The Latin letters that `text` shows, in upper case and with nothing between them.

    >>> letters_of("K-t\u200br \u1e7d, \uff22!")
    'KTRVB'
    """
    if not text.isascii():
        text = normalize("NFKD", text)
    return text.encode("ascii", "ignore").upper().translate(None, _NO_LETTERS).decode("ascii")
