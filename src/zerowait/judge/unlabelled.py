"""Verdicts that no label names and that nobody can mistake, each in a place of one kind.

- A sentence in which the judge gives it: "I'd rate this an 8 out of 10."
- The end of Prometheus' feedback: "[RESULT] 4".
- The beginning of a reply that names no other: a number with its scale ("8/10 - clear"), or a word
  of the choice with its reason ("Yes, because step 2 holds").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from zerowait.judge.claims import Claim, Reader, Reading, Spans, is_within, says_nothing_after
from zerowait.judge.introduction import introduced

_JUDGED = (
    r"(?:it|this(?:[ ]one)?|(?:this|the)[ ](?:response|answer|reply|solution|output|essay|text))"
)
_OF = r"(?P<of>(?:(?:final|overall|total)[ ])?(?:score|rating|grade|mark)[ ]of[ ])?"
_RATES = ("rate", "give", "score", "grade", "assign", "award")
_EARNS = ("deserves", "earns", "gets", "merits", "receives")
_GIVES = re.compile(
    rf"""
    [\n.!?;,] [\s*_\#>-]*+
    (?: (?:so|thus|therefore|hence|overall|finally|and|in[ ](?:summary|conclusion)) ,?[ ] )?
    (?: i(?:'d|'ll|[ ]would|[ ]will)? [ ] (?:(?:therefore|thus|hence)[ ])?
        (?:{"|".join(_RATES)}) [ ] (?:{_JUDGED}[ ])?
      | {_JUDGED} [ ] (?:{"|".join(_EARNS)}) [ ] )
    (?:(?:an?|at|as)[ ])? {_OF} (?=[*_`\[(]*+(?:[0-9]|[a-z]{{3,5}}\b))
    """,
    re.VERBOSE,
)
_VERBS = tuple(f" {verb} " for verb in (*_RATES, *_EARNS))
"""One of these is in each text that `_GIVES` finds something in."""

_RESULT = re.compile(r"[\s.!?;]\[result\]:?[ \t]*+(?=[0-9])")
_BECAUSE = re.compile(r"[*_`]*[,;]?[ ](?:-[ ]|—[ ]?)?(?:because|since|as|due[ ]to)\b")
_OPENS = re.compile(r"[\s#]*")
_LINES = re.compile(r"\n[\s#>*_-]*+(?=[0-9])")


def given_claims(text: str, reader: Reader, skip: Spans) -> Iterator[Claim]:
    """The numbers that sentences of `text` give; `text` is as in `claims.text_claims`."""
    # looking for a word first takes a tenth of the time, and most texts have none
    gives = _GIVES.finditer(text) if any(map(text.__contains__, _VERBS)) else ()
    results = _RESULT.finditer(text) if "[result]" in text else ()
    for match in chain(gives, results):
        if is_within(match.start(), skip) or introduced(text, match.start() + 1):
            continue
        reading = reader.at(text, match.end())
        if reading is None or not isinstance(reading.verdict, float):
            continue
        if (
            says_nothing_after(text, reading.end)
            if match.re is _RESULT
            else match["of"] or reading.scaled
        ):
            yield Claim(reading.verdict, match.start(), reading.end, final=False)


def opening_claim(text: str, reader: Reader) -> Claim | None:
    """The verdict that `text` begins with, or None; for a text that claims no other."""
    opened = _OPENS.match(text)
    start = opened.end() if opened else 0
    reading = reader.at(text, start)
    if reading is None or reading.verdict is None or not _stands(text, reader, reading):
        return None
    return Claim(reading.verdict, start, reading.end, final=False)


def _stands(text: str, reader: Reader, reading: Reading) -> bool:
    if isinstance(reading.verdict, str):
        return _BECAUSE.match(text, reading.end) is not None
    return reading.scaled and not any(
        below is not None and below.scaled  # the lines of a rubric, or of several verdicts
        for below in (reader.at(text, line.end()) for line in _LINES.finditer(text, reading.end))
    )
