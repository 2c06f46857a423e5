"""The pairs of math_pairs.txt: kind, gold answer, answer, and whether the two are equal."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("math_pairs.txt")


class Pair(NamedTuple):
    kind: str
    gold: str
    said: str
    is_equal: bool


def pairs() -> Iterator[Pair]:
    """The first form of a line against every other one, both ways, and the first two against the misses."""
    kind = ""
    for line in FILE.read_text(encoding="ascii").splitlines():
        if not line or line[0] == "#":
            continue
        if line[0] == "[" and line[-1] == "]" and ";;" not in line:
            kind = line[1:-1]
            continue
        equal, _, misses = line.partition(" !! ")
        forms, wrong = (_forms(each) for each in (equal, misses))
        for other in forms[1:]:
            yield Pair(kind, forms[0], other, is_equal=True)
            yield Pair(kind, other, forms[0], is_equal=True)
        for gold in forms[:2]:
            yield from (Pair(kind, gold, miss, is_equal=False) for miss in wrong)


def _forms(text: str) -> list[str]:
    spelt = [each.strip() for each in text.split(" ;; ")]
    return [_characters(each) for each in spelt if each]


def _characters(text: str) -> str:
    r"""\u221a as the character; the file itself is ASCII so that it can be read anywhere."""
    parts = text.split("\\u")
    found = [parts[0]]
    for part in parts[1:]:
        try:
            found.append(chr(int(part[:4], 16)) + part[4:])
        except ValueError:
            found.append(f"\\u{part}")
    return "".join(found)
