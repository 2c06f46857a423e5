"""Labels of compared responses, and the parser of the order in which a judge puts them.

An order is searched for in the same places as every verdict (`zerowait.judge.parsing.claims`), and
as strictly: each label exactly once, none missing, nothing else on the line; ties only where they
were asked for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from itertools import count
from typing import Final
from unicodedata import normalize

import msgspec

from zerowait.completion import Completion
from zerowait.judge.parsing.answer import visible_answer
from zerowait.judge.parsing.claims import (
    CLOSING,
    OPENING,
    Reading,
    Verdict,
    order_key_pattern,
    order_label_pattern,
)
from zerowait.judge.parsing.context import Remarks, remarks
from zerowait.judge.parsing.verdict import find_claim, reason_of
from zerowait.judge.reply import read_completion
from zerowait.types import Abstain, FailureKind, Outcome, Score

LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
"""Without vowels, so that no label is a word of any text."""
LENGTH = 6
"""Letters of a label at least: 64 million of them, too many to be guessed."""
_TURNS_PER_LENGTH = 1000  # a text that holds so many labels may hold all: the next are longer
_NO_LETTERS = bytes(set(range(256)) - set(LETTERS.encode()) - set(b"AEIOUY"))


def labels_for(
    texts: Collection[str], *, beside: Iterable[str] = (), length: int = LENGTH
) -> list[str]:
    """One label for each text, none of which can be read in any text of the request.

    They depend on the set of the texts and not on its order: the text that is shown first gets the
    first label, so that two requests that show the same texts in both orders are otherwise equal.

    Args:
        texts: those that get the labels.
        beside: the other texts of the request, such as the prompt.
        length: letters of a label, at least.

    >>> labels_for(["4", "5"]) == labels_for(["5", "4"])
    True
    """
    seed = sha256()
    for group in (texts, beside := list(beside)):
        digests = sorted(sha256(text.encode("utf-8", "surrogatepass")).digest() for text in group)
        seed.update(sha256(b"".join(digests)).digest())
    shown = [latin_letters(text) for text in (*texts, *beside)]
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


def latin_letters(text: str) -> str:
    r"""The Latin letters that `text` shows, in upper case and with nothing between them.

    >>> latin_letters("K-t\u200br \u1e7d, \uff22!")
    'KTRVB'
    """
    if not text.isascii():
        text = normalize("NFKD", text)
    return text.encode("ascii", "ignore").upper().translate(None, _NO_LETTERS).decode("ascii")


TIE: Final = "TIE"
_NAME = re.compile(
    rf"""
    [{OPENING}]*+ (?:(?:the[ ])?response[ ]++)? [{OPENING}]*+
    (?P<name> [{LETTERS.lower()}]++ | {TIE.lower()} ) (?!\w)
    [{CLOSING}]*+
    """,
    re.VERBOSE,
)
_BETTER = re.compile(
    r"""[ ] (?: wins | is[ ](?:(?:clearly|slightly|much|far|the|marginally|somewhat)[ ])*+
        (?:better|best|stronger)
        (?: [ ]than[ ](?:response[ ])?(?P<than>[a-z]++) | [ ](?:response|one|answer) )?+
      | \((?:slightly|clearly|narrowly|marginally|by[ ]far)\) )(?!\w)""",
    re.VERBOSE,
)
_BETWEEN = re.compile(r"[ \t]*+(?P<sign>>{1,2}|≻|=|≈|~|,)[ \t]*+")
_ENDS = re.compile(
    r"(?:</[a-z_]{1,24}>)?[.!。]?[ \t*_`]*(?:\n|\Z)"
    r"|[ \t]++(?:because|since)\b|[,;][ \t]++(?:because|since)\b"
)
_TIES: Final = frozenset("=≈~")


class OrderReader(msgspec.Struct, frozen=True):
    """Reads an order of `names` (folded), or the best of two of them.

    A verdict is the order as text: positions from the best to the worst, ``1>0`` or ``0=1``.
    """

    names: tuple[str, ...]
    ties: bool
    label: re.Pattern[str] = order_label_pattern()
    key: re.Pattern[str] = order_key_pattern()

    def read_at(self, text: str, position: int) -> Reading | None:
        """The order that begins at `position`, if one does."""
        name = _NAME.match(text, position)
        if name is None:
            return None
        said, end = [name["name"]], name.end()
        while between := _BETWEEN.match(text, end):
            name = _NAME.match(text, between.end())
            if name is None:
                return Reading(None, between.end())
            said += ["=" if between["sign"] in _TIES else ">", name["name"]]
            end = name.end()
        if len(said) == 1 and len(self.names) == 2:
            end = self._remark_end(text, end, said[0])
        return Reading(self._order(said) if _ENDS.match(text, end) else None, end)

    def _remark_end(self, text: str, end: int, name: str) -> int:
        """Where a remark ends that only says once more that `name` is the better of two."""
        remark = _BETTER.match(text, end)
        other = remark["than"] if remark else None
        if remark is None or (other is not None and (other == name or other not in self.names)):
            return end
        return remark.end()

    @property
    def inner_key(self) -> None:
        """None: an order has no criteria."""

    def inside(self) -> OrderReader:
        """Itself."""
        return self

    def from_number(self, value: float) -> Verdict | None:
        """None: no number is an order."""
        del value
        return None

    @property
    def remarks(self) -> Remarks:
        """Patterns of other labels behind an order."""
        either = "|".join(map(re.escape, self.names))
        return remarks(either, rf"(?:{either})(?!\w)")

    def is_other_scale(self, said: str) -> bool:
        """False: an order has no scale."""
        del said
        return False

    def _order(self, said: Sequence[str]) -> str | None:
        if len(self.names) == 2 and len(said) == 1:
            if said[0] == TIE.lower():
                return "0=1" if self.ties else None
            said = [said[0], ">", *(name for name in self.names if name != said[0])]
        places = {name: str(position) for position, name in enumerate(self.names)}
        if sorted(said[::2]) != sorted(self.names) or ("=" in said and not self.ties):
            return None
        return "".join(places.get(word, word) for word in said)


def order_format(labels: Sequence[str], *, ties: bool, reason_first: bool) -> str:
    """The instruction that tells a judge in which form to give an order.

    Args:
        labels: of the responses, in the order in which they are shown.
        ties: whether the judge may call some equally good.
        reason_first: whether it gives its reasons before the order.

    >>> print(order_format(["KTRV", "BXMD"], ties=True, reason_first=False))
    Reply with exactly one line of this form and nothing else:
    Verdict: LABEL
    where LABEL is the label of the better response, KTRV or BXMD, or TIE if they are equally good.
    """
    opening = (
        "First give your reasons in a few sentences. Then end your reply with exactly one line "
        "of this form and write nothing after it:"
        if reason_first
        else "Reply with exactly one line of this form and nothing else:"
    )
    if len(labels) == 2:
        tie = f", or {TIE} if they are equally good" if ties else ""
        return (
            f"{opening}\nVerdict: LABEL\nwhere LABEL is the label of the better response, "
            f"{' or '.join(labels)}{tie}."
        )
    tie = " Write = instead of > between responses that are equally good." if ties else ""
    return (
        f"{opening}\nRanking: LABEL > LABEL > ...\nfrom the best response to the worst, with each "
        f"of these labels exactly once: {', '.join(labels)}.{tie}"
    )


def read_order(completion: Completion, labels: Sequence[str], *, ties: bool) -> Outcome:
    """The order in a decoded reply, or an Abstain that says why there is none.

    A Score's ``detail["order"]`` lists positions from the best place to the worst, several at one
    place where they tie; its `value` is the place of the response that was shown first, from 1
    (best) to 0 (worst). The kinds of abstention are those of `zerowait.judge.read_reply`.
    """
    reader = OrderReader(tuple(label.lower() for label in labels), ties)
    return read_completion(completion, lambda text: parse_order(text, reader))


def parse_order(text: str, reader: OrderReader) -> Score | Abstain:
    r"""The order that `text` gives. Raises nothing for any text.

    >>> reader = OrderReader(("ktrv", "bxmd", "wlqz"), ties=True)
    >>> parse_order("The last is wrong.\nRanking: BXMD > KTRV = WLQZ", reader).detail
    {'order': [[1], [0, 2]]}
    >>> parse_order("Ranking: BXMD > KTRV", reader).kind.value
    'unparseable'
    """
    found = find_claim(visible_answer(text), reader)
    count = len(reader.names)
    expected = (
        f"one of {', '.join(reader.names).upper()}"
        if count == 2
        else f"an order of {count} labels, each exactly once"
    )
    if isinstance(found, str):
        return Abstain(FailureKind.UNPARSEABLE, f"{found}; expected {expected}")
    claim, answer = found
    if claim.verdict is None:
        problem = "the reply's verdict has another form"
        return Abstain(FailureKind.UNPARSEABLE, f"{problem}; expected {expected}")
    places = [place.split("=") for place in str(claim.verdict).split(">")]
    order = [[int(position) for position in place] for place in places]
    return Score(_place_of_first(order), reason_of(claim, answer), {"order": order})


def _place_of_first(order: Sequence[Sequence[int]]) -> float:
    before = 0
    for place in order:
        if 0 in place:
            after = sum(map(len, order)) - before - len(place)
            return (after + (len(place) - 1) / 2) / (before + after + len(place) - 1)
        before += len(place)
    raise AssertionError  # pragma: no cover - an order names every position
