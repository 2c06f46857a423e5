"""What stands behind a value and decides whether it is the judge's verdict.

A value may be followed by the end of its line, or by a remark: after a full stop, a comma, a dash,
in brackets, or from "because" on. Anything else makes something else of it: a count (``2 of the
claims``), a range, a sum, a line of the rubric (``10: perfect``). A remark must not begin with
another value, nor say of what or under which condition the value would be the verdict, and neither
it nor what comes after it may take the value back.

Texts are folded. Every pattern looks at a bounded place, so that the time is linear in the text.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

_REMARK_CHARS = 400
_FOLLOWS = re.compile(
    r"""
      [ \t*_`|]*+ (?P<end> \n | \Z )
    | [.!。] (?= [\s*_`"'$)\]}»] | \Z | [\u3040-\u9fff\uac00-\ud7a3] )
    | [ \t]*+ (?: (?P<bracket> \( | \[ ) | [,;|] )
    | [ \t]++ -  (?= [ \t] ) | [ \t]*+ — | [ \t]*+ < (?= /?[a-z] )
    | [ \t]++ (?: because | since | due[ ]to | overall | from[ ]me | in[ ]total | given
        | considering | based[ ]on | in[ ]my[ ](?:view|opinion|judge?ment|assessment)
        | for[ ]this[ ](?:response|answer) ) \b
    """,
    re.VERBOSE,
)
_FULL_STOPS = (".", "!", "。")
_OPENS = re.compile(r"[\s*_`\"'$(\[.,;:|—-]*+")
_NEARLY = (
    r"(?:but|though|although|however|yet|no|not|nope|or|to|so|than|rather|instead|vs\.?|versus"
    r"|really|actually|maybe|perhaps|possibly|probably|i|it's|it[ ]is|say|->|=>|→|=)"
)
_CORRECTS = (
    r"(?:actually|i[ ]mean|i[ ]meant|correction|corrected|revised|make[ ](?:it|that|this)"
    r"|should[ ](?:be|have[ ]been)"
    r"|(?:i'd|i[ ]would|i'll|i[ ]will|let's)[ ](?:say|give|rate|go|call)"
    r"|change[ds]?[ ](?:it|my|this|that|to)|lower(?:ed)?[ ](?:it|this|that|to)"
    r"|raised?[ ](?:it|this|that|to)|instead)"
)
_TAKES_BACK = re.compile(
    r"""
    (?: (?<=[.!?,;(\n—-]) | \A ) [ \t*_`"']*+ (?: no,?[ ] | but[ ] | oh,?[ ] )?
        (?: wait (?= [ ]*+ (?: [,.:!—…-] | no\b | \n | \Z ) ) | hold[ ]on | scratch[ ]that
          | oops | correction | on[ ]second[ ]thought
          | i[ ]take[ ](?:it|that)[ ]back | i(?:'ve|[ ]have)?[ ]changed[ ]my[ ]mind | never[ ]?mind
          | let[ ]me[ ](?:re\w+|correct|change|think[ ]again) | hmm+ | undecided ) (?!\w)
  | (?<=[.!?;\n]) [ \t\n*_]*+ (?:minus|plus|less|subtract|deduct)[ ]
        (?:[0-9]|an?[ ]|half|one|two|three)
  | \b(?:that|this|it|which)(?:'s|[ ]is|[ ]was|[ ]seems|[ ]may[ ]be|[ ]would[ ]be)[ ]
        (?:\w{1,8}[ ]){0,2} too[ ](?:high|low|generous|harsh|strict|lenient|kind)\b
  | \b(?:not|un)[ ]?(?:sure|decided|final)\b
  | \b(?:that|this|it)[ ](?:is[ ](?:only|just|merely)[ ]an[ ]example
      | (?:is[ ]reserved|would[ ]be)[ ]for[ ]
      | would[ ](?:be|have[ ]been)[ ](?:the|my|its)[ ](?:score|rating|verdict|grade)\b )
    """,
    re.VERBOSE,
)
_WHOLLY_DENIED = re.compile(r"(?:not|never|false|wrong|untrue|incorrect|不|否)[\s.!)\]]*+(?:\n|\Z)")
_WHOSE = r"(?:the|this|its|an?)[ ](?:response|answer|author|text|policy|model|student|user)"
_ELSE = r"(?:other|previous|earlier|next|perfect|ideal|flawless|hypothetical|typical|reference)"
# A remark in the same sentence that says when the value would be the verdict, or whose it is.
_QUALIFIES = re.compile(
    rf"""
      \? | right\?
    | (?: minus | plus | less ) (?= [ ] (?: [0-9] | an? | half | one | two | three ) )
    | with[ ](?:an?[ ]|some[ ])?(?:deductions?|penalt(?:y|ies)|bonus)\b
    | (?:(?:but|and|then|from[ ]which)[ ]){{0,2}}(?:i[ ](?:will[ ]|must[ ]|would[ ])?|i'll[ ])?
        (?:deduct|subtract|dock|knock[ ]off|take[ ](?:off|away))\b
    | before[ ](?:any[ ]|the[ ])?(?:deductions?|penalt(?:y|ies)|adjust\w+|bonus\w*)\b
    | (?: (?:only[ ])?if | unless | had[ ](?:it|they|this|there|the) | were[ ](?:it|they|this|the)
        | assuming | supposing | provided | providing | depending | otherwise | pending
        | hypothetical(?:ly)? | reserved | which[ ](?:means|would|could|might) ) \b
    | for[ ](?:the|an?)[ ]{_ELSE}\b | the[ ]{_ELSE}[ ](?:response|answer|one|judge|score)\b
    | according[ ]to[ ]{_WHOSE}\b | (?:said|says|claims|claimed)[ ]{_WHOSE}\b
    | as[ ]{_WHOSE}[ ](?:says|claims|asks|requests|demands|instructs|suggests|states|wants)
        (?=[ ]*+(?:[.,;)]|\Z))
    | (?:{_WHOSE}'s|its|their)[ ]own[ ](?:claim|rating|score|verdict|words)\b
    | (?: at[ ](?:best|most|worst|least|first) | max(?:imum)? | min(?:imum)? | initial(?:ly)?
        | tentative(?:ly)? | provisional(?:ly)? | preliminary | draft | previous(?:ly)?
        | previous[ ](?:response|answer|score) | last[ ]time | earlier | (?:as[ ]an?[ ])?example
        | for[ ]example | for[ ]instance | e\.g\.? | say | ideally | in[ ]theory | (?:the[ ])?rubric
        | or[ ](?:so|lower|higher|less|more|thereabouts)
        | (?:in[ ])?(?:the[ ])?(?:best|worst)[ -]case | from[ ]the[ ](?:rubric|example|scale|prompt)
        | as[ ](?:in[ ]the[ ]example|requested|instructed|told|asked|demanded)[^.,;)\n]{{0,40}} )
      (?= [ *_"'`]*+ (?: [.,;!?)\]] | \Z ) )
    """,
    re.VERBOSE,
)
_LEGEND = re.compile(r"[,;(][ \t]*+[-+]?[0-9.]++[ \t]*+(?:[-=:—]|is\b|means\b)")
_OF_A_SCALE = re.compile(
    r"[ \t(\[,;]*+(?:(?:on|from)[ ](?:an?|the)[ ]|out[ ]of|of|scale|range|max|满分|[0-9]++分制)"
)
# The line below goes on with a sentence whose subject the value is, or says whose it is.
_GOES_ON = re.compile(
    r"""
    [^\w\n]*+ \n [^\w]*+ (?: json\b \W*+ )?
    (?: (?: is | isn't | was | are | were | which | says? | said | claims | means? | would | appears
          | stands | looks | seems | and | or | but[ ]not ) \b
      | (?:that|this|the[ ](?:last|above|previous))[ ]line \b
      | (?:that|this|it)[ ](?:is|was|comes|came)[ ](?:what|in|from|part|written|only)\b [^.\n]{0,60}
        \b(?:response|text|answer|author|policy|says|said|writes|wrote|claims)\b )
    """,
    re.VERBOSE,
)


class Remarks(NamedTuple):
    """How values of one kind come up in what follows a verdict."""

    begins: re.Pattern[str]
    corrects: re.Pattern[str]


@cache
def remarks(value: str, standing: str) -> Remarks:
    """The patterns for values of one kind.

    Args:
        value: a pattern of anything that could be one.
        standing: a pattern of one that stands for itself, as a clause does.
    """
    near = (
        rf"(?<!\w){_NEARLY}[\s,.:;!(\"'*_`-]{{1,4}}(?:(?:a|an|just|maybe|be|of|only)[ ])?{standing}"
    )
    far = rf"(?<!\w){_CORRECTS}(?!\w)[^.\n]{{0,24}}?(?<![\w.]){standing}"
    return Remarks(re.compile(value), re.compile(rf"{near}|{far}"))


def well_followed(text: str, end: int, known: Remarks) -> bool:
    """Whether what follows a value that ends at `end` leaves it what it is."""
    follows = _FOLLOWS.match(text, end)
    if follows is None:
        return False
    if follows["end"] is not None:
        return True
    stop = text.find("\n", follows.end())
    stop = min(len(text) if stop < 0 else stop, follows.end() + _REMARK_CHARS)
    remark = text[follows.end() : stop]
    opened = _OPENS.match(remark)
    first = opened.end() if opened else 0
    if known.begins.match(remark, first) or _WHOLLY_DENIED.match(remark, first):
        return False
    same_sentence = text[follows.start() : follows.start() + 1] not in _FULL_STOPS
    qualified = same_sentence and _QUALIFIES.match(remark, first) is not None
    if qualified or _LEGEND.search(remark) or takes_back(remark, known):
        return False
    if follows["bracket"] is None:
        return True
    closed = _closing(text, follows.end(), stop)
    return closed is None or well_followed(text, closed, known)


def of_a_scale(text: str, end: int) -> str:
    """What the remark behind a value says about its scale, or nothing."""
    match = _OF_A_SCALE.match(text, end)
    if match is None:
        return ""
    stop = re.compile(r"[.)\]\n]|\Z").search(text, match.end())
    return text[end : min(stop.start() if stop else end, match.end() + 40)]


def takes_back(after: str, known: Remarks) -> bool:
    """Whether what comes after a verdict takes it back, or puts another one into its place.

    >>> known = remarks("[0-9]", "[0-9]")
    >>> takes_back("no, wait", known), takes_back("but really 3", known)
    (True, True)
    >>> takes_back("because 2 of 3 steps hold", known)
    False
    """
    return _TAKES_BACK.search(after) is not None or known.corrects.search(after) is not None


def goes_on(text: str, end: int) -> bool:
    """Whether the line below goes on with a sentence that the value is a part of."""
    return _GOES_ON.match(text, end) is not None


def _closing(text: str, start: int, stop: int) -> int | None:
    """Where the bracket that was opened before `start` is closed; None where it is not."""
    depth = 1
    for position in range(start, stop):
        depth += (text[position] in "([") - (text[position] in ")]")
        if not depth:
            return position + 1
    return None
