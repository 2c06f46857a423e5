"""What stands around a value and decides whether it is the judge's verdict.

A value may be followed by the end of its line, or by a remark: after a full stop, a comma, a dash,
in brackets, or from "because" on. Anything else makes something else of it: a count (``2 of the
claims``), a range, a sum, a line of the rubric (``10: perfect``). A remark must not begin with
another value, and neither it nor what comes after it may take the value back. And a value that the
judge introduces as somebody's words is not its own.

Texts are folded. Every pattern looks at a bounded place, so that the time is linear in the text.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

_REMARK_CHARS = 400
_LINE_CHARS = 300
_FOLLOWS = re.compile(
    r"""
      [ \t*_`|]*+ (?P<end> \n | \Z )
    | [.!。] (?= [\s*_`"'$)\]}»] | \Z | [\u3040-\u9fff\uac00-\ud7a3] )
    | [ \t]*+ (?: (?P<bracket> \( | \[ ) | [,;|] )
    | [ \t]++ -  (?= [ \t] ) | [ \t]*+ — | [ \t]*+ < (?= /?[a-z] )
    | [ \t]++ (?: because | since | due[ ]to ) \b
    """,
    re.VERBOSE,
)
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
  | \b(?:that|this|it|which)(?:'s|[ ]is|[ ]was|[ ]seems|[ ]may[ ]be|[ ]would[ ]be)[ ]
        (?:\w{1,8}[ ]){0,2} too[ ](?:high|low|generous|harsh|strict|lenient|kind)\b
  | \b(?:not|un)[ ]?(?:sure|decided|final)\b
    """,
    re.VERBOSE,
)
_WHOLLY_DENIED = re.compile(r"(?:not|never|false|wrong|untrue|incorrect|不|否)[\s.!)\]]*+(?:\n|\Z)")
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
_SAYING = (
    r"(?:says?|said|saying|writes?|wrote|written|writing|claim(?:s|ed|ing)?|states?|stated|stating"
    r"|reads|contains?|containing|includes?|including|(?:ends?|ended|ending|begins?|starts?)[ ]"
    r"(?:with|in|on)|quotes?|quoted|quoting|prints?|printed|outputs?|append(?:s|ed)?|insert(?:s|ed)?"
    r"|inject(?:s|ed)?|embed(?:s|ded)?|ignor(?:e|es|ed|ing)|declares?|asserts?|announces?|adds?|added"
    r"|tells?|told|instructs?|demands?|wants)"
)
_SAYS = re.compile(rf"\b{_SAYING}\b")
_INTRODUCES = re.compile(
    rf"""
    (?: \b{_SAYING} | \b(?:line|text|string|words?|sentence|phrase|following|instruction|quote) )
    (?: [ ](?:that|this|the|a|following|follows|line|text|itself|me|us) ){{0,3}}
    [ \t]*+ [:,"'`*_(\[-]*+ \Z
  | [ \t:]["'`]++ \Z
    """,
    re.VERBOSE,
)
_ONLY_MARKS = re.compile(r"[\s*_`~=|#>-]*+(?:json|text|markdown)?[ \t]*+\Z")
_SENTENCE_ENDS = re.compile(r"[.!?。][ \t\"')\]]")
_FINISHED = (".", "!", "。")


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
    if _LEGEND.search(remark) or takes_back(remark, known):
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


def introduced(text: str, start: int) -> bool:
    r"""Whether what begins at `start` is introduced as what somebody else says.

    >>> text = "\nthe response ends with the line\nscore: 10"
    >>> introduced(text, text.index("score"))
    True
    >>> text = "\nthe response ends with a summary.\nscore: 10"
    >>> introduced(text, text.index("score"))
    False
    """
    line = text[max(text.rfind("\n", 0, start) + 1, start - _LINE_CHARS) : start]
    if not _ONLY_MARKS.match(line):
        if line.count('"') % 2:
            return True
        sentence = list(_SENTENCE_ENDS.finditer(f"{line} "))
        return _SAYS.search(line, sentence[-1].end() - 1 if sentence else 0) is not None
    before = line_before(text, start)
    if before.endswith(_FINISHED):
        return False
    return _INTRODUCES.search(before) is not None or (
        before.endswith(":") and _SAYS.search(before) is not None
    )


def finished_before(text: str, start: int) -> bool:
    """Whether what stands above the line at `start` is a whole sentence, or nothing.

    What does not end with a full stop may be a heading or a question, and the value its answer.
    """
    before = line_before(text, start).rstrip(" \t*_`\"')]}|")
    return not before or before.endswith(_FINISHED)


def line_before(text: str, start: int) -> str:
    """The last line above `start` that has more than marks on it, or nothing."""
    end = text.rfind("\n", 0, start)
    while end > 0:
        begin = text.rfind("\n", 0, end) + 1
        line = text[max(begin, end - _LINE_CHARS) : end].rstrip()
        if not _ONLY_MARKS.match(line):
            return line
        end = begin - 1
    return ""


def _closing(text: str, start: int, stop: int) -> int | None:
    """Where the bracket that was opened before `start` is closed; None where it is not."""
    depth = 1
    for position in range(start, stop):
        depth += (text[position] in "([") - (text[position] in ")]")
        if not depth:
            return position + 1
    return None
