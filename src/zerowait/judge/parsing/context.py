"""What the text around a value makes of it: the judge's verdict, or something else.

A number behind "Score:" is no verdict where the sentence goes on ("Score: 7, or maybe 8"), where
it is taken back later ("wait, no"), or where the line above says whose words follow ("the response
ends with:"). Each check looks at one place with a regular expression that cannot backtrack far, so
the time is linear in the text. Texts come in lower case (`folded`): matching without regard to
case is several times slower.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from zerowait.patterns import lazy_pattern

_REMARK_CHARS = 400
_FOLLOWS = lazy_pattern(
    r"""
      [ \t*_`|]*+ (?P<end> \n | \Z )
    | [.!。] (?= [\s*_`"'$)\]}»] | \Z | [\u3040-\u9fff\uac00-\ud7a3] )
    | [ \t]*+ (?: (?P<bracket> \( | \[ ) | [,;|] )
    | [ \t]++ -  (?= [ \t] ) | [ \t]*+ — | [ \t]*+ < (?= /?[a-z] )
    | [ \t]++ (?P<cause> because | since | due[ ]to | given | considering | based[ ]on ) \b
    | [ \t]++ (?: overall | from[ ]me | in[ ]total
        | in[ ]my[ ](?:view|opinion|judge?ment|assessment)
        | for[ ]this[ ](?:response|answer) | would[ ](?:not[ ]|\w{1,10}ly[ ])?recommend ) \b
    | [ \t]++ (?: for[ ]me | answer | response | reply ) (?= [.!,] | [*_]*+ (?: \n | \Z ) )
    | [ \t]++ [:;]-?[)d] (?! \w )
    | \s++ (?= [*_]*+ (?: reason(?:ing|s)? | explanation | rationale | justification | feedback
        | comments? | why ) [*_]*+ [ ]? [:=] (?! [ ]?(?:if|unless|had)\b ) )
    | : (?= [ ] (?: (?:the|this)[ ](?:response|answer|reply|solution|assistant|model|essay|text)
        | it[ ](?:is|was|does|has|lacks) | because | although ) \b )
    """,
    re.VERBOSE,
)
_FULL_STOPS = (".", "!", "。")
_OPENS = lazy_pattern(r"[\s*_`\"'$(\[.,;:|—-]*+")
_NEARLY = (
    r"(?:but|though|although|however|yet|edit|edited|update|updated|no|nope|or|to|so|than|rather|instead|vs\.?|versus"
    r"|really|actually|mostly|largely|maybe|perhaps|possibly|probably|i|it's|it[ ]is|say|->|=>|→|=)"
)
_CORRECTS = (
    r"(?:actually|i[ ]mean|i[ ]meant|correction|corrected|revised|make[ ](?:it|that|this)"
    r"|should[ ](?:be|have[ ]been)"
    r"|(?:i'd|i[ ]would|i'll|i[ ]will|let's)[ ](?:say|give|rate|go|call)"
    r"|change[ds]?[ ](?:it|my|this|that|to)|lower(?:ed)?[ ](?:it|this|that|to)"
    r"|raised?[ ](?:it|this|that|to)|instead|sorry"
    r"|on[ ](?:reflection|reconsideration|rereading)|after[ ]re-?(?:read|consider|think|view)\w*)"
)
_TAKES_BACK = lazy_pattern(
    r"""
    (?: (?<=[.!?,;(\n—-]) | \A ) [ \t*_`"']*+
        (?: no,?[ ] | but[ ] | oh,?[ ] | (?:edit|note|update)[*_]*+:[*_]*+[ ] )?
        (?: wait (?= [ ]*+ (?: [,.:!—…-] | no\b | \n | \Z ) ) | hold[ ]on | scratch[ ]that
          | oops | correction | on[ ]second[ ]thought
          | i[ ]take[ ](?:it|that)[ ]back | i(?:'ve|[ ]have)?[ ]changed[ ]my[ ]mind | never[ ]?mind
          | let[ ]me[ ](?:re\w+|correct|change|think[ ]again) | hmm+ | undecided ) (?!\w)
  | (?<=[.!?;\n]) [ \t\n*_]*+ (?: (?:note|edit|but|also|p\.?s\.?)[*_]*+[:,]?[ ] )?+
        (?:minus|plus|less|subtract|deduct)[ ]
        (?:[0-9]|an?[ ]|half|one|two|three)
  | \b(?:that|this|it|which)(?:'s|[ ]is|[ ]was|[ ]seems|[ ]may[ ]be|[ ]would[ ]be)[ ]
        (?:\w{1,8}[ ]){0,2} too[ ](?:high|low|generous|harsh|strict|lenient|kind)\b
  | \b(?:not|un)[ ]?(?:sure|decided|final)\b
  | \n [ \t*_\#]*+ (?:human|user) [*_]*+ : [^\n]{0,400} \n\s*+
        [*_\#]*+ (?:assistant|ai|model) [*_]*+ :
  | \b(?:that|this|it)[ ](?:is[ ](?:only|just|merely)[ ]an[ ]example
      | (?:is[ ]reserved|would[ ]be)[ ]for[ ]
      | would[ ](?:be|have[ ]been)[ ](?:the|my|its)[ ](?:score|rating|verdict|grade)\b )
    """,
    re.VERBOSE,
)
_RECONSIDERS = lazy_pattern(
    r"""
    \b on[ ]second[ ]thought\b | \bscratch[ ]that\b | \bi(?:'ve|[ ]have)?[ ]changed?[ ]my[ ]mind\b
  | \bi[ ]take[ ](?:it|that)[ ]back\b
  | (?: \A | (?<=[.!?\u2026]) ) \s*+ (?:no,[ ]|oh,[ ]|but[ ])? wait (?=[,.:!\u2026\u2014])
  | \b(?:i'd|i'll|i|let[ ]me)[ ](?:would[ ]|will[ ]|have[ ]to[ ])?
      (?:lower|raise|reduce|change|revise|correct|drop|adjust)[ ](?:it|this|that|(?:the|my)[ ]\w+)\b
  | \b(?:score|rating|grade|verdict)[ ]should[ ](?:\w{1,8}[ ])?be\b
    """,
    re.VERBOSE,
)
_WHOLLY_DENIED = lazy_pattern(
    r"(?:not|never|false|wrong|untrue|incorrect|不|否)[\s.!)\]]*+(?:\n|\Z)"
)
_WHOSE = r"(?:the|this|its|an?)[ ](?:response|answer|author|text|policy|model|student|user)"
_ELSE = r"(?:other|previous|earlier|next|perfect|ideal|flawless|hypothetical|typical|reference)"
# A remark in the same sentence that says when the value would be the verdict, or whose it is.
_QUALIFIES = lazy_pattern(
    rf"""
      \? | right\?
    | (?: minus | plus | less ) (?= [ ] (?: [0-9] | an? | half | one | two | three ) )
    | with[ ](?:an?[ ]|some[ ])?(?:deductions?|penalt(?:y|ies)|bonus)\b
    | (?:(?:but|and|then|from[ ]which)[ ]){{0,2}}(?:i[ ](?:will[ ]|must[ ]|would[ ])?|i'll[ ])?
        (?:deduct|subtract|dock|knock[ ]off|take[ ](?:off|away))\b
    | (?:but[ ]|just[ ]|slightly[ ]|though[ ]){{0,2}}(?:lean(?:s|ing)|edging)\b
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
_LEGEND = lazy_pattern(r"[,;(][ \t]*+[-+]?[0-9.]++[ \t]*+(?:[-=:—]|is\b|means\b)")
_OF_A_SCALE = lazy_pattern(
    r"[ \t(\[,;]*+(?:(?:on|from)[ ](?:an?|the)[ ]|out[ ]of|of|scale|range|max|满分|[0-9]++分制)"
)
# The line below goes on with a sentence whose subject the value is, or says whose it is.
_GOES_ON = lazy_pattern(
    r"""
    [^\w\n]*+ \n [^\w]*+ (?: json\b \W*+ )?
    (?: (?: is | isn't | was | are | were | which | says? | said | claims | means? | would | appears
          | stands | looks | seems | and | or | but[ ]not ) \b
      | (?:that|this|the[ ](?:last|above|previous))[ ]line \b
      | (?:that|this|the[ ]above)[ ](?:is|was)[ ](?:the|its)[ ]
        (?:response|answer|policy|model|author)\b
    | (?:that|this|it)[ ](?:is|was|comes|came)[ ](?:what|in|from|part|written|only)\b [^.\n]{0,60}
        \b(?:response|text|answer|author|policy|says|said|writes|wrote|claims)\b )
    """,
    re.VERBOSE,
)


class Remarks(NamedTuple):
    """Patterns of other values in the text behind a verdict.

    Args:
        begins: a remark that begins with a value.
        corrects: a remark that replaces the verdict by another value.
    """

    begins: re.Pattern[str]
    corrects: re.Pattern[str]


@cache
def remarks(value: str, as_clause: str, *, denied: bool = True) -> Remarks:
    """The patterns of remarks for one kind of values.

    Args:
        value: matches anything that may be a value.
        as_clause: matches a value that ends its clause, or is the subject of one.
        denied: whether "not" before another value casts doubt, as it does among words.
    """
    article = r"(?:(?:a|an|just|maybe|be|of|only)[ ])?"
    nearly = rf"(?:{_NEARLY}|not)" if denied else _NEARLY
    near = rf"(?<!\w){nearly}[\s,.:;!(\"'*_`-]{{1,4}}{article}{as_clause}"
    far = rf"(?<!\w){_CORRECTS}(?!\w)[^.\n]{{0,24}}?(?<![\w.]){as_clause}"
    return Remarks(re.compile(value), re.compile(rf"{near}|{far}"))


def is_unqualified(text: str, end: int, known: Remarks) -> bool:
    """Whether the text behind a value leaves it: no range, condition, doubt or correction.

    Args:
        text: in lower case.
        end: where the value ends.
        known: how other values of this kind come up in remarks.
    """
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
    is_other = follows["cause"] is None and known.begins.match(remark, first) is not None
    if is_other or _WHOLLY_DENIED.match(remark, first):
        return False
    same_sentence = text[follows.start() : follows.start() + 1] not in _FULL_STOPS
    qualified = same_sentence and _QUALIFIES.match(remark, first) is not None
    if qualified or _LEGEND.search(remark) or retracts(remark, known):
        return False
    if follows["bracket"] is None:
        return True
    closed = _closing(text, follows.end(), stop)
    return closed is None or is_unqualified(text, closed, known)


def scale_remark(text: str, end: int) -> str:
    """The remark behind a value that names its scale, such as " out of 5"; "" without one."""
    match = _OF_A_SCALE.match(text, end)
    if match is None:
        return ""
    stop = re.compile(r"[.)\]\n]|\Z").search(text, match.end())
    return text[end : min(stop.start() if stop else end, match.end() + 40)]


def retracts(after: str, known: Remarks) -> bool:
    """Whether the text after a verdict takes it back, or replaces it by another one.

    >>> known = remarks("[0-9]", "[0-9]")
    >>> retracts("no, wait", known), retracts("but really 3", known)
    (True, True)
    >>> retracts("because 2 of 3 steps hold", known)
    False
    """
    return _TAKES_BACK.search(after) is not None or known.corrects.search(after) is not None


def reconsiders(reason: str) -> bool:
    """Whether the reason that follows a verdict, in lower case, gives another one.

    What it says of the response's own numbers does not count: "it is 12, not 7".
    """
    return _RECONSIDERS.search(reason) is not None


def sentence_continues(text: str, end: int) -> bool:
    """Whether the line below a value that ends at `end` continues the value's own sentence."""
    return _GOES_ON.match(text, end) is not None


def _closing(text: str, start: int, stop: int) -> int | None:
    """Where the bracket that was opened before `start` is closed; None where it is not."""
    depth = 1
    for position in range(start, stop):
        depth += (text[position] in "([") - (text[position] in ")]")
        if not depth:
            return position + 1
    return None


_LINE_CHARS = 300
_SAYING = (
    r"(?:says?|said|saying|writes?|wrote|written|writing|claim(?:s|ed|ing)?|states?|stated|stating"
    r"|reads|contains?|containing|includes?|including|(?:ends?|ended|ending|begins?|starts?)[ ]"
    r"(?:with|in|on)|quotes?|quoted|quoting|prints?|printed|outputs?|append(?:s|ed)?|insert(?:s|ed)?"
    r"|inject(?:s|ed)?|embed(?:s|ded)?|ignor(?:e|es|ed|ing)|declares?|asserts?|announces?|adds?|added"
    r"|tells?|told|instructs?|demands?|wants)"
)
_SAYS = lazy_pattern(rf"\b{_SAYING}\b")
_INTRODUCES = lazy_pattern(
    rf"""
    (?: \b{_SAYING} | \b(?:line|text|string|words?|sentence|phrase|following|instruction|quote) )
    (?: [ ](?:that|this|the|a|following|follows|line|text|itself|me|us) ){{0,3}}
    [ \t]*+ [:,"'`*_(\[-]*+ \Z
  | [ \t:]["'`]++ \Z
    """,
    re.VERBOSE,
)
_EXAMPLE = (
    r"(?:(?:for|an?|another)[ ](?:example|instance|illustration)|for[ ]instance|e\.g|such[ ]as"
    r"|examples?[ ](?:output|reply|response|answer|score|verdict|rating)s?|hypothetical(?:ly)?)"
)
_CONDITION = (
    r"(?:if|unless|otherwise|when(?:ever)?|had[ ](?:it|they|this|there|the)|were[ ](?:it|they)"
    r"|without|assuming|assume|suppos(?:e|ing)|imagine|provided|in[ ](?:that|which)[ ]case"
    r"|(?<!\bi[ ])would|with\b[^.]{0,60}\bwould|could|might|may|maybe|perhaps"
    r"|possibly|at[ ](?:best|most|worst|least)|ideally|in[ ]theory|typically|usually|normally)"
)
_ELSEWHERE = (
    r"(?:previous(?:ly)?|earlier|last[ ]time|next|others?|another|former|compared[ ](?:to|with)"
    r"|reference|ideal|perfect|flawless|initial(?:ly)?|at[ ]first"
    r"|first[ ](?:impression|guess|thought)"
    r"|most[ ](?:responses|answers|judges)|such[ ](?:responses|answers)"
    r"|(?:response|answer|candidate|option|criterion|aspect|dimension)[ ]\#?(?:[0-9]{1,2}|[a-d])"
    r"|does(?:n't|[ ]not)|do(?:n't|[ ]not)|won't|cannot|can't|never)"
)
# In the sentence that a claim ends, or above it in one that goes on with the claim.
_OTHERWISE = lazy_pattern(rf"\b(?:{_EXAMPLE}|{_CONDITION}|{_ELSEWHERE})\b")
_RECITES = lazy_pattern(
    r"\b(?:asked|told|instructed|required|supposed|expected|have|has|need|needs|must|should)"
    r"[ ](?:me[ ])?to[ ](?:\w{1,12}[ ]){0,3}"
    r"(?:reply|respond|answer|end|write|output|give|say|return)\b"
)
_UNFINISHED = lazy_pattern(
    r"\b(?:be|been|gets?|got|gives?|given|deserves?|merits?|earns?|receives?|with|as|an?|the|of|to|is"
    r"|it|than|like|by|for|maybe|perhaps|possibly|imagine|suppose|assume)\Z"
)
# A line that ends with a colon names what comes: these name the judge's own verdict.
_OWN = lazy_pattern(
    r"\b(?:my|verdict|final|overall|evaluation|evaluate|assessment|assess|judge?ment|judging|rating"
    r"|rate|scor(?:e|es|ing)|grade|grading|conclusion|conclude|summary|decision|result|output|json"
    r"|answer|review|feedback|therefore|thus|so|second[ ]thought|correct(?:ion|ed)"
    r"|revis(?:ion|ed)|here[ ](?:it|you|they)[ ](?:is|are|go)|sure|all[ ]in[ ]all|into[ ]account"
    r"|i(?:'d|'ll|[ ]would|[ ]will)?[ ](?:give|rate|assign|grade)|based|considering|given"
    r"|bewertung|urteil|fazit)\b"
    r"|评|分|结论|结果|总|判|答|理由|スコア|評|結|点|점수|평가|결"
)
_NOT_OWN = lazy_pattern(
    r"\b(?:(?:scale|rubric|guidelines?|instructions?|template|scheme|legend|key)\W*\Z"
    r"|(?:format|form|example|template)[ ](?:of|for|is|would|will|should|must)\b"
    r"|(?:scoring|grading|rating|evaluation|assessment)[ ]"
    r"(?:scale|rubric|guide\w*|criteria|scheme|instructions?|format|levels?)"
    r"|(?:expected|required|desired|requested)[ ](?:output|answer|result|json|reply|score)"
    r"|(?:its|their|his|her)[ ](?:own[ ])?(?:\w{1,12}[ ])?"
    r"(?:answer|output|result|conclusion|rating|score|summary|verdict|evaluation|assessment)"
    r"|(?:response|model|author|student|user|policy)'s|self)\b"
)
_HEADS_EXAMPLE = lazy_pattern(
    r"[\s\#*_-]*+(?:an?[ ]|the[ ])?(?:scoring[ ]|grading[ ]|reply[ ]|output[ ]|rating[ ])?"
    r"(?:examples?|samples?|rubric|scale|format|template|instructions?|legend|guidelines?)"
    r"(?:[ ](?:output|reply|response|answer))?[\s*_:]*\Z"
)
# The heading of another response than the first, or of another turn.
_HEADS_OTHER = lazy_pattern(
    r"\s*+(?:\#{1,6}|\*\*)[ *_]*+(?:\w{1,12}[ ])?"
    r"(?:response|answer|candidate|assistant|model|sample|turn|question|item|option)"
    r"[ ]\#?(?:[2-9]|[1-9][0-9]|[b-d])[\s*_:]*+\Z"
)
_ANNOUNCES = lazy_pattern(
    r"\b(?:here(?:'s|[ ]is|[ ]are)|following|below|(?:next|last|final)[ ]line)\b[^.]{0,60}"
    r"\b(?:example|format|form|template|sample|instructions?|illustration|rubric|scale|other|previous)"
    r"\b"
)
_ANNOUNCING = ("here", "following", "below", " line")
"""One of these is in each text that `_ANNOUNCES` finds something in."""

_ONLY_MARKS = lazy_pattern(r"[\s*_`~=|#>-]*+(?:json|text|markdown)?[ \t]*+\Z")
_SENTENCE_ENDS = lazy_pattern(r"(?<!e\.g)(?<!i\.e)(?<!vs)[.!?。][ \t\"')\]]")
_FINISHED = (".", "!", "。")


def introduced_as_other(text: str, start: int) -> bool:
    r"""Whether the text before `start` introduces a quote, an example or a condition.

    >>> text = "\nthe response ends with the line\nscore: 10"
    >>> introduced_as_other(text, text.index("score"))
    True
    >>> text = "\nthe response ends with a summary.\nscore: 10"
    >>> introduced_as_other(text, text.index("score"))
    False
    """
    line = text[max(text.rfind("\n", 0, start) + 1, start - _LINE_CHARS) : start]
    if not _ONLY_MARKS.match(line):
        if line.count('"') % 2:
            return True
        ends = list(_SENTENCE_ENDS.finditer(f"{line} "))
        begin = ends[-1].end() - 1 if ends else 0
        return any(known.search(line, begin) for known in (_SAYS, _OTHERWISE, _RECITES))
    return _introduces(line_before(text, start))


def _introduces(before: str) -> bool:
    """Whether the line `before` a claim says that it is quoted, an example, or conditional."""
    if before.endswith(_FINISHED):
        return _announces(before)
    if _INTRODUCES.search(before) or _HEADS_EXAMPLE.match(before) or _HEADS_OTHER.match(before):
        return True
    said = before.rstrip(" \t*_`")
    if not said.endswith((":", "\uff1a")):
        goes_on = _UNFINISHED.search(said) is not None
        return goes_on and (_OTHERWISE.search(said) or _RECITES.search(said)) is not None
    named = _OWN.search(said) is not None and _NOT_OWN.search(said) is None
    return not named or any(known.search(said) for known in (_SAYS, _OTHERWISE, _RECITES))


def _announces(line: str) -> bool:
    """Whether the line announces an example."""
    if not any(map(line.__contains__, _ANNOUNCING)):  # ten times faster than the pattern
        return False
    return _ANNOUNCES.search(line) is not None


def ends_a_sentence(reasons: str) -> bool:
    """Whether the last line of `reasons` ends a sentence and announces no example.

    What follows such a line is the judge's own, so that `introduced_as_other` need not be asked.
    """
    line = reasons.rstrip().rpartition("\n")[2].lower()
    return line.endswith(_FINISHED) and not any(map(line.__contains__, _ANNOUNCING))


def follows_full_stop(text: str, start: int) -> bool:
    """Whether the line above `start` ends a sentence, or there is none.

    A line that does not may be a heading or a question, and a value below it the answer to that.
    """
    before = line_before(text, start).rstrip(" \t*_`\"')]}|")
    return not before or (before.endswith(_FINISHED) and not _announces(before))


def line_before(text: str, start: int) -> str:
    """The last line above `start` that has more than Markdown marks on it; "" without one."""
    end = text.rfind("\n", 0, start)
    while end > 0:
        begin = text.rfind("\n", 0, end) + 1
        line = text[max(begin, end - _LINE_CHARS) : end].rstrip()
        if not _ONLY_MARKS.match(line):
            return line
        end = begin - 1
    return ""
