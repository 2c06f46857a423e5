"""Reads the order in which a judge puts labelled responses, or the one it prefers.

It looks where every verdict is looked for (`zerowait.judge.claims`), and is as strict: each label
exactly once, nothing missing, nothing else on the line; ties only where they were asked for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from zerowait.judge.claims import (
    CLOSING,
    OPENING,
    Reading,
    Verdict,
    order_key_pattern,
    order_label_pattern,
)
from zerowait.judge.context import Remarks, remarks
from zerowait.judge.labels import LETTERS
from zerowait.judge.reply import read_with
from zerowait.judge.verdict import claimed, reason_of
from zerowait.types import Abstain, FailureKind, Outcome, Score

TIE: Final = "TIE"
_NAME = re.compile(
    rf"""
    [{OPENING}]*+ (?:(?:the[ ])?response[ ]++)? [{OPENING}]*+
    (?P<name> [{LETTERS.lower()}]++ | {TIE.lower()} ) (?!\w)
    [{CLOSING}]*+
    """,
    re.VERBOSE,
)
_BETWEEN = re.compile(r"[ \t]*+(?P<sign>>{1,2}|≻|=|≈|~|,)[ \t]*+")
_ENDS = re.compile(
    r"[.!。]?[ \t*_`]*(?:\n|\Z)|[ \t]++(?:because|since)\b|[,;][ \t]++(?:because|since)\b"
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

    def at(self, text: str, position: int) -> Reading | None:
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
        return Reading(self._order(said) if _ENDS.match(text, end) else None, end)

    def of(self, value: float) -> Verdict | None:
        """None: no number is an order."""
        del value
        return None

    @property
    def remarks(self) -> Remarks:
        """How other labels come up in what follows an order."""
        either = "|".join(map(re.escape, self.names))
        return remarks(either, rf"(?:{either})(?!\w)")

    def other_scale(self, said: str) -> bool:
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
    """What the judge is told about the form of its answer.

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


def read_order(
    body: bytes, labels: Sequence[str], *, ties: bool, endings: Collection[str] = ()
) -> Outcome:
    """The order in a reply's body, or an Abstain that says why there is none.

    A Score's ``detail["order"]`` lists positions from the best place to the worst, several at one
    place where they tie; its `value` is the place of the response that was shown first, from 1
    (best) to 0 (worst). The kinds of abstention are those of `zerowait.judge.read_reply`.
    """
    reader = OrderReader(tuple(label.lower() for label in labels), ties)
    return read_with(body, lambda text: parse_order(text, reader), endings)


def parse_order(text: str, reader: OrderReader) -> Score | Abstain:
    r"""The order that `text` gives. Raises nothing for any text.

    >>> reader = OrderReader(("ktrv", "bxmd", "wlqz"), ties=True)
    >>> parse_order("The last is wrong.\nRanking: BXMD > KTRV = WLQZ", reader).detail
    {'order': [[1], [0, 2]]}
    >>> parse_order("Ranking: BXMD > KTRV", reader).kind.value
    'unparseable'
    """
    found = claimed(text, reader)
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
