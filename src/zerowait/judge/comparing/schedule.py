"""Which responses of a group are compared with which. Deterministic."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

_ANCHORS: Final = 2


def by_content(texts: Iterable[str]) -> list[str]:
    """The distinct `texts`, shuffled with a seed that is a hash of the whole set.

    The order does not depend on how often a text occurs, nor on the order of `texts`.

    >>> by_content(["b", "a", "b"]) == by_content(["a", "b"])
    True
    """
    digests = {text: sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts}
    seed = sha256(b"".join(sorted(digests.values()))).digest()
    return sorted(digests, key=lambda text: sha256(seed + digests[text]).digest())


def pairings(size: int, rounds: int | None) -> list[tuple[int, int]]:
    """The pairs of ``range(size)`` that are compared.

    All pairs without `rounds`, or where a member has no more than that many others. Else each
    member is compared with `rounds` others, in a group of odd size some with one more. From two
    rounds on the pairs connect all members.

    Args:
        size: how many responses there are.
        rounds: with how many others each is compared; None for all.

    Reference:
        the circle method of round-robin tournaments: one stays in place, the others rotate.

    >>> pairings(4, 2)
    [(0, 3), (1, 2), (1, 3), (0, 2)]
    """
    if rounds is None or rounds >= size - 1:
        return [(i, j) for i in range(size) for j in range(i + 1, size)]
    odd = size % 2  # then the place that does not rotate is empty
    circle = size + odd - 1
    pairs = []
    for turn in range(rounds + odd):
        if not odd:
            pairs.append((turn, circle))
        steps = range(1, circle // 2 + 1)
        pairs += [((turn + step) % circle, (turn - step) % circle) for step in steps]
    return [(min(pair), max(pair)) for pair in pairs]


def windows(size: int, most: int) -> list[list[int]]:
    """``range(size)`` in windows of at most `most`, all with the first two members in them.

    These two connect the windows' rankings. The others are spread evenly.

    >>> windows(3, 3), windows(6, 4)
    ([[0, 1, 2]], [[0, 1, 2, 4], [0, 1, 3, 5]])
    """
    if size <= most:
        return [list(range(size))]
    count = -(-(size - _ANCHORS) // (most - _ANCHORS))
    return [[*range(_ANCHORS), *range(_ANCHORS + at, size, count)] for at in range(count)]
