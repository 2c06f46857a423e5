"""Verdicts that a sentence gives ("this response deserves a 7"), or that a reply begins with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from zerowait.judge.parsing.claims import (
    ClaimReader,
    Reading,
    Spans,
    VerdictClaim,
    is_last_word,
    is_within,
)
from zerowait.judge.parsing.context import introduced_as_other
from zerowait.judge.parsing.readers import SOLID

_JUDGED = (
    r"(?:it|this(?:[ ]one)?|(?:this|the)[ ](?:response|answer|reply|solution|output|essay|text)"
    r"|the[ ](?:overall[ ])?quality[ ]of[ ](?:it|this|this[ ](?:response|answer|reply)))"
)
_MARK = r"(?:score|rating|grade|mark)"
_OF = rf"(?P<of>(?:(?:final|overall|total)[ ])?{_MARK}[ ]of[ ])?"
_RATES = ("rate", "give", "score", "grade", "assign", "award")
_EARNS = ("deserves", "earns", "gets", "merits", "receives", "scores")
_OTHERS = ("go with", "settle on", "call", "put", "place", "say", "giving", "rating", "rated")
_OPENERS = r"""
    (?: (?: (?:so|thus|therefore|hence|and|then|accordingly) | (?P<lead> overall | finally
      | ultimately | in[ ](?:summary|conclusion) | on[ ]balance | all[ ]in[ ]all | to[ ]conclude
      | for[ ](?:these|that)[ ]reasons? | given[ ](?:this|that|these) | based[ ]on[ ](?:this|that)
      | (?:i|we)[ ](?:think|believe|feel)(?:[ ]that)? ) ) ,?[ ] ){0,2}
    (?P<on> (?: on[ ]an?[ ]scale[ ](?:from|of)[ ][0-9]++[ ]?(?:to|-)[ ]?[0-9]++
      | on[ ](?:an?|the)[ ][0-9]++[ ]?(?:to|-)[ ]?[0-9]++[ ]scale | from[ ][0-9]++[ ]to[ ][0-9]++
      | out[ ]of[ ][0-9]++ ) ,?[ ] )?
"""
_WILL = (
    r"(?:i|we)(?:'d|'ll|'m|[ ]would|[ ]will|[ ]am)?[ ](?:(?:therefore|thus|hence|going[ ]to)[ ])?"
)
# In the groups is what makes a bare number a verdict: an object that is rated, or an article.
_GIVES = re.compile(
    rf"""
    [\n.!?;,:] [\s*_\#>-]*+ {_OPENERS}
    (?: {_WILL} (?: (?:{"|".join(_RATES)}) | giving | awarding ) [ ] (?P<object>{_JUDGED}[ ])?
      | (?P<puts> {_WILL} (?:put|place)[ ]{_JUDGED}[ ]at[ ] )
      | {_WILL} (?: (?:go|going)[ ]with | (?:settle|land)[ ]on | call[ ]it
          | say[ ](?:it|this)(?:'s|[ ]is) ) [ ]
      | {_JUDGED} [ ] (?: (?P<deserves>deserves|merits) | (?P<earns>{"|".join(_EARNS)}) ) [ ]
      | (?:this|it)(?:'s|[ ]is)[ ] (?= an?[ ]{SOLID}[ ] )
      | (?P<is> (?:this|it|that)(?:'s|[ ]is)[ ] (?=an?[ ]) )
      | (?P<mark> (?:(?:my|the)[ ])?(?:(?:final|overall|appropriate|(?:most[ ])?fitting
          |resulting)[ ])?{_MARK} (?:[ ](?:i|we)(?:'d|[ ]would)?[ ](?:give|assign))?
          (?:[ ](?:would|should)[ ]be|[ ]is) [ ] )
      | (?: (?:rated|rating|giving|scoring) [ ] (?:{_JUDGED}[ ])? )
      | (?P<bare> (?=(?:an?[ ])?(?:final[ ]|overall[ ])?{_MARK}[ ]of) ) )
    (?P<article>an?[ ])? (?: (?:at|as)[ ](?:an?[ ])? )? (?P<solid>{SOLID}[ ])? {_OF}
    (?=[*_`\[(]*+(?:[0-9]|[a-z]{{3,5}}\b))
    """,
    re.VERBOSE,
)
_VERBS = (
    *(f" {verb} " for verb in (*_RATES, *_EARNS, *_OTHERS, "is", "it's", "of", "be")),
    *("\nrated ", "\nrating ", "\ngiving ", "\nit's ", "\nthis ", "\nit "),
)
"""One of these is in each text that `_GIVES` finds something in."""
_SENTENCE_CHARS = 300
# "With tests, this deserves a 9" and "According to its author, this deserves a 10".
_SUPPOSES = re.compile(
    r"[\s*_#>-]*+(?:with(?![ ](?:that|this|these|all)\b)|according[ ]to|(?:in|by)[ ](?:its|their))"
    r"\b"
)
_FITTING = re.compile(
    rf"""
    [\n.!?;,:] [\s*_\#>-]*+ {_OPENERS} (?:an?|the)[ ](?:(?:final|overall)[ ])?(?:{_MARK}[ ]of[ ])?
    (?P<number>[0-9]++(?:\.[0-9]++)?) (?:/(?P<out>[0-9]++))? [ ](?:is|seems|feels)[ ]
    (?:(?:most|quite|only|well)[ ])?
    (?:appropriate|fair|warranted|justified|reasonable|fitting|suitable|deserved)
    (?= [*_]*+ (?: [.,;!\n] | \Z
      | [ ](?:here|overall|because|since|given|for[ ]this[ ]response)\b ) )
    """,
    re.VERBOSE,
)

_RESULT = re.compile(r"[\s.!?;]\[result\]:?[ \t]*+(?=[0-9])")
_BECAUSE = re.compile(r"[*_`]*[,;]?[ ](?:-[ ]|—[ ]?)?(?:because|since|as|due[ ]to)\b")
_OPENING = re.compile(r"[\s#]*")
_LINES = re.compile(r"\n[\s#>*_-]*+(?=[0-9])")


def sentence_claims(text: str, reader: ClaimReader, skip: Spans) -> Iterator[VerdictClaim]:
    """The numbers that sentences of a text give as verdict; `text` as in `text_claims`."""
    # most texts have none of these words, and looking for one takes a tenth of the time
    gives = _GIVES.finditer(text) if any(map(text.__contains__, _VERBS)) else ()
    results = _RESULT.finditer(text) if "[result]" in text else ()
    for match in chain(gives, results):
        if is_within(match.start(), skip) or introduced_as_other(text, match.start() + 1):
            continue
        if _SUPPOSES.match(text, _sentence_start(text, match.start())):
            continue
        reading = reader.read_at(text, match.end())
        if reading is None or not isinstance(reading.verdict, float):
            continue
        if (
            is_last_word(text, reading.end)
            if match.re is _RESULT
            else _is_verdict_sentence(match, reading, reader)
        ):
            yield VerdictClaim(reading.verdict, match.start(), reading.end, final=False)
    yield from _fitting_claims(text, reader, skip)


def _sentence_start(text: str, position: int) -> int:
    """Where the sentence begins that `position` is in; at most 300 characters before it."""
    begin = max(position - _SENTENCE_CHARS, 0)
    return max(text.rfind(end, begin, position + 1) for end in (*"\n.!?;", "\u3002")) + 1


def _is_verdict_sentence(match: re.Match[str], reading: Reading, reader: ClaimReader) -> bool:
    """Whether the sentence leaves no doubt that the number is the verdict.

    "It gets 2" may be about a sum, and "I'd give 3" about reasons: there an article, a scale or a
    word such as "score" has to say what the number is.
    """
    if reader.is_other_scale(match["on"] or ""):
        return False
    if match["is"]:  # "It's a 7" may be about a digit
        return bool(match["on"] or match["lead"] or reading.scaled)
    if match["earns"] and match[0].startswith(",") and not match["lead"]:
        return reading.scaled  # "on the second roll, it gets a 2"
    known = ("of", "on", "object", "deserves", "puts", "solid", "mark", "article")
    return reading.scaled or any(match[name] for name in known)


def _fitting_claims(text: str, reader: ClaimReader, skip: Spans) -> Iterator[VerdictClaim]:
    """The numbers that are called appropriate: "A score of 7 seems fair."."""
    if " is " not in text and " seems " not in text and " feels " not in text:
        return
    for match in _FITTING.finditer(text):
        if is_within(match.start(), skip) or introduced_as_other(text, match.start() + 1):
            continue
        scale = f"{match['on'] or ''} {match['out'] or ''}"
        verdict = (
            None if reader.is_other_scale(scale) else reader.from_number(float(match["number"]))
        )
        if isinstance(verdict, float):
            yield VerdictClaim(verdict, match.start(), match.end(), final=False)


def opening_claim(text: str, reader: ClaimReader) -> VerdictClaim | None:
    """The verdict that `text` begins with, or None. Only for a text that claims no other."""
    opened = _OPENING.match(text)
    start = opened.end() if opened else 0
    reading = reader.read_at(text, start)
    if reading is None or reading.verdict is None or not _needs_no_label(text, reader, reading):
        return None
    return VerdictClaim(reading.verdict, start, reading.end, final=False)


def _needs_no_label(text: str, reader: ClaimReader, reading: Reading) -> bool:
    if isinstance(reading.verdict, str):
        return _BECAUSE.match(text, reading.end) is not None
    return reading.scaled and not any(
        below is not None and below.scaled  # the lines of a rubric, or of several verdicts
        for below in (
            reader.read_at(text, line.end()) for line in _LINES.finditer(text, reading.end)
        )
    )
