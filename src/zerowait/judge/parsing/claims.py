"""What a text claims as its verdict: labelled values, and a last line that is only a value.

Everything here looks at one place at a time with a regular expression that cannot backtrack far,
so the time is linear in the text. What a *value* looks like is the `ClaimReader`'s business. Texts
are `folded` before they come here, because matching without regard to case is several times slower.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from math import inf
from typing import NamedTuple, Protocol, TypeAlias

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


_LINE_CHARS = 300
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
_OTHERWISE = re.compile(rf"\b(?:{_EXAMPLE}|{_CONDITION}|{_ELSEWHERE})\b")
_RECITES = re.compile(
    r"\b(?:asked|told|instructed|required|supposed|expected|have|has|need|needs|must|should)"
    r"[ ](?:me[ ])?to[ ](?:\w{1,12}[ ]){0,3}"
    r"(?:reply|respond|answer|end|write|output|give|say|return)\b"
)
_UNFINISHED = re.compile(
    r"\b(?:be|been|gets?|got|gives?|given|deserves?|merits?|earns?|receives?|with|as|an?|the|of|to|is"
    r"|it|than|like|by|for|maybe|perhaps|possibly|imagine|suppose|assume)\Z"
)
# A line that ends with a colon names what comes: these name the judge's own verdict.
_OWN = re.compile(
    r"\b(?:my|verdict|final|overall|evaluation|evaluate|assessment|assess|judge?ment|judging|rating"
    r"|rate|scor(?:e|es|ing)|grade|grading|conclusion|conclude|summary|decision|result|output|json"
    r"|answer|review|feedback|therefore|thus|so|second[ ]thought|correct(?:ion|ed)"
    r"|revis(?:ion|ed)|here[ ](?:it|you|they)[ ](?:is|are|go)|sure|all[ ]in[ ]all|into[ ]account"
    r"|i(?:'d|'ll|[ ]would|[ ]will)?[ ](?:give|rate|assign|grade)|based|considering|given"
    r"|bewertung|urteil|fazit)\b"
    r"|评|分|结论|结果|总|判|答|理由|スコア|評|結|点|점수|평가|결"
)
_NOT_OWN = re.compile(
    r"\b(?:(?:scale|rubric|guidelines?|instructions?|template|scheme|legend|key)\W*\Z"
    r"|(?:format|form|example|template)[ ](?:of|for|is|would|will|should|must)\b"
    r"|(?:scoring|grading|rating|evaluation|assessment)[ ]"
    r"(?:scale|rubric|guide\w*|criteria|scheme|instructions?|format|levels?)"
    r"|(?:expected|required|desired|requested)[ ](?:output|answer|result|json|reply|score)"
    r"|(?:its|their|his|her)[ ](?:own[ ])?(?:\w{1,12}[ ])?"
    r"(?:answer|output|result|conclusion|rating|score|summary|verdict|evaluation|assessment)"
    r"|(?:response|model|author|student|user|policy)'s|self)\b"
)
_HEADS_EXAMPLE = re.compile(
    r"[\s\#*_-]*+(?:an?[ ]|the[ ])?(?:scoring[ ]|grading[ ]|reply[ ]|output[ ]|rating[ ])?"
    r"(?:examples?|samples?|rubric|scale|format|template|instructions?|legend|guidelines?)"
    r"(?:[ ](?:output|reply|response|answer))?[\s*_:]*\Z"
)
_ANNOUNCES = re.compile(
    r"\b(?:here(?:'s|[ ]is|[ ]are)|following|below|(?:next|last|final)[ ]line)\b[^.]{0,60}"
    r"\b(?:example|format|form|template|sample|instructions?|illustration|rubric|scale|other|previous)"
    r"\b"
)
_ANNOUNCING = ("here", "following", "below", " line")
"""One of these is in each text that `_ANNOUNCES` finds something in."""

_ONLY_MARKS = re.compile(r"[\s*_`~=|#>-]*+(?:json|text|markdown)?[ \t]*+\Z")
_SENTENCE_ENDS = re.compile(r"(?<!e\.g)(?<!i\.e)(?<!vs)[.!?。][ \t\"')\]]")
_FINISHED = (".", "!", "。")


def introduced(text: str, start: int) -> bool:
    r"""Whether what begins at `start` is introduced as something else than the judge's verdict.

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
        ends = list(_SENTENCE_ENDS.finditer(f"{line} "))
        begin = ends[-1].end() - 1 if ends else 0
        return any(known.search(line, begin) for known in (_SAYS, _OTHERWISE, _RECITES))
    return _introduces(line_before(text, start))


def _introduces(before: str) -> bool:
    """Whether the line `before` a claim makes somebody else's, or nobody's, verdict of it."""
    if before.endswith(_FINISHED):
        return _announces(before)
    if _INTRODUCES.search(before) or _HEADS_EXAMPLE.match(before):
        return True
    said = before.rstrip(" \t*_`")
    if not said.endswith((":", "\uff1a")):
        goes_on = _UNFINISHED.search(said) is not None
        return goes_on and (_OTHERWISE.search(said) or _RECITES.search(said)) is not None
    named = _OWN.search(said) is not None and _NOT_OWN.search(said) is None
    return not named or any(known.search(said) for known in (_SAYS, _OTHERWISE, _RECITES))


def _announces(line: str) -> bool:
    """Whether the line says that an example comes."""
    if not any(map(line.__contains__, _ANNOUNCING)):  # known ten times sooner
        return False
    return _ANNOUNCES.search(line) is not None


def finished_before(text: str, start: int) -> bool:
    """Whether what stands above the line at `start` is a whole sentence, or nothing.

    What does not end with a full stop may be a heading or a question, and the value its answer.
    """
    before = line_before(text, start).rstrip(" \t*_`\"')]}|")
    return not before or (before.endswith(_FINISHED) and not _announces(before))


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


Verdict: TypeAlias = float | str


Spans: TypeAlias = Sequence[tuple[int, int]]


class Reading(NamedTuple):
    """A value found at one place; None is something that is not a verdict: a range, say.

    Args:
        verdict: the value.
        end: where it ends.
        scaled: whether it comes with its scale, as in "7/10".
    """

    verdict: Verdict | None
    end: int
    scaled: bool = False


class VerdictClaim(NamedTuple):
    """A verdict that the text claims.

    Args:
        verdict: the value, or None where the text claims something that is not a verdict.
        start: where the claim begins.
        end: where it ends.
        final: whether it fills the last line, so that it overrules what was claimed before.
        reason: the reason that came with it, where it has a place of its own.
    """

    verdict: Verdict | None
    start: int
    end: int
    final: bool
    reason: str = ""


class ClaimReader(Protocol):
    """Reads the values of one verdict rule."""

    @property
    def label(self) -> re.Pattern[str]:
        """Finds the places where a verdict is labelled."""

    @property
    def key(self) -> re.Pattern[str]:
        """Matches the JSON keys that label a verdict."""

    def at(self, text: str, position: int) -> Reading | None:
        """The value that begins at `position`, if one does."""

    @property
    def remarks(self) -> Remarks:
        """How other values come up in what follows a verdict."""

    def of(self, value: float) -> Verdict | None:
        """The verdict that a bare JSON number stands for."""

    def other_scale(self, said: str) -> bool:
        """Whether `said`, about a scale, speaks of another one than the rule's."""


OPENING = r" \t*_`\"'$(\[«"
CLOSING = r"*_`\"'$)\]}»"

_NUMBER_LABELS = (
    r"(?:scores?|rating|grade|mark|verdict|judge?ment|evaluation|assessment|overall|bewertung"
    r"|punktzahl|puntuaci[oó]n|calificaci[oó]n|оценка)(?![^\W_])"
    r"|评分|得分|分数|打分|评级|评价|总分|スコア|評価|得点|点数|점수|평점"
)
_CHOICE_LABELS = (
    r"(?:answer|choice|decision|prediction|conclusion|result|label|classification|antwort|urteil"
    r"|respuesta)(?![^\W_])"
    rf"|判断|判定|结论|答案|预测|结果|{_NUMBER_LABELS}"
)
_ORDER_LABELS = (
    r"(?:ranking|ranks?|order|winner|(?:better|best|preferred)(?:[ \t_-]response)?|preference"
    r"|rangfolge|gewinner)(?![^\W_])"
    rf"|排名|排序|名次|胜者|更好的?|{_CHOICE_LABELS}"
)
_LEADS = (
    r"(?:(?:the|my|your|our|its|so|thus|therefore|hence|final|overall|total|weighted|combined"
    r"|composite|aggregate)(?:[ \t]+|[_-])|(?:最终|最后|综合|总体|整体|总)的?){0,4}"
)
_LABEL = rf"""
    [\n.!?;,({{。、…]                                     # a line or a clause begins
    (?: (?<=\n) [ \t]*+ (?P<bullet> [-*+•][ \t]++ | [0-9]{{1,2}}[.)][ \t]++ ) )?
    [ \t\#*_`|]*+
    (?P<quote>["'<【\[])?
    {_LEADS} (?P<label>%s)
    (?(quote)["'>】\]])
    (?: [ \t]+(?:of|for)[ \t]+(?:the|this)[ \t]+(?:response|answer|reply|solution|output)\b )?
    [*_`]*+
    (?: [ \t]*+ (?P<scale> [(\[](?:[0-9 .,/~-]|to|out|of|from|points?|scale|max|满分|分制?)*+[)\]]
      | (?:out[ ]of|/)[ \t]*+[0-9]++(?![a-z]) ) )?
    [ \t*_`]*+
    (?P<word> is\b | are\b | 为 | 是(?!否) | -(?=[ \t]) | — )?
    [ \t]*+
    (?P<sign> => | [:=]++ | -> | → | \| )?
"""
_LINE_ENDS = re.compile(r"[.!。,|]?[ \t*_`|]*(?:\n|\Z)")
_BLANK_TO_NEXT_LINE = re.compile(r"[ \t*_`]*\n\s*")
_NAMES = frozenset(("answer", "choice", "label", "result", "prediction", "classification"))
_TAGS = ("<", "【")
_KEY_QUOTES = ('"', "'")
_BARE_OPENS = re.compile(r"[ \t#]*")
_AFTER_LAST_WORD = " \t\n`*_-=~.!。|$)]}>\"'"


@cache
def label_pattern(*, numeric: bool) -> re.Pattern[str]:
    """Finds the place where a verdict is labelled; the value may begin at the match's end."""
    return re.compile(_LABEL % (_NUMBER_LABELS if numeric else _CHOICE_LABELS), re.VERBOSE)


@cache
def key_pattern(*, numeric: bool) -> re.Pattern[str]:
    """Matches a JSON key that labels a verdict."""
    labels = _NUMBER_LABELS if numeric else _CHOICE_LABELS
    return re.compile(rf"{_LEADS}(?:{labels})")


@cache
def named_label(name: str) -> re.Pattern[str]:
    """Finds the places where a verdict is labelled with this name: ``Tool use`` for tool_use."""
    return re.compile(_LABEL % _spelled(name), re.VERBOSE)


@cache
def named_key(name: str) -> re.Pattern[str]:
    """Matches a JSON key that is this name."""
    return re.compile(_spelled(name))


@cache
def order_label_pattern() -> re.Pattern[str]:
    """Finds the place where an order, or the better of two, is labelled."""
    return re.compile(_LABEL % _ORDER_LABELS, re.VERBOSE)


@cache
def order_key_pattern() -> re.Pattern[str]:
    """Matches a JSON key that labels an order."""
    return re.compile(rf"{_LEADS}(?:{_ORDER_LABELS})")


def text_claims(text: str, reader: ClaimReader, skip: Spans) -> Iterator[VerdictClaim]:
    """The labelled verdicts of `text` outside the spans `skip`, then its bare last line if any.

    `text` is folded and begins with a newline, so that every label has a character before it to be
    found by.
    """
    last_line = _last_line_start(text)
    read = is_within(last_line, skip)
    for claim in labelled_claims(text, reader, skip):
        read = read or claim.end > last_line
        yield claim
    if read:
        return
    if reading := bare_line(text, last_line, reader, whole=last_line == 1):
        alone = finished_before(text, last_line)
        yield VerdictClaim(reading.verdict if alone else None, last_line, reading.end, final=False)


def labelled_claims(text: str, reader: ClaimReader, skip: Spans) -> Iterator[VerdictClaim]:
    """The labelled verdicts of `text`, as in `text_claims`."""
    last_line = _last_line_start(text)
    nested = text.count("{") > 1  # in broken JSON a key may belong to an inner object
    for match in reader.label.finditer(text):
        if is_within(match.start(), skip) or (nested and match["quote"] in _KEY_QUOTES):
            continue
        claim = _labelled(text, match, reader, last_line)
        if claim is not None:
            yield claim


def is_within(position: int, spans: Spans) -> bool:
    """Whether `position` lies in one of the spans, which are in order."""
    before = bisect_right(spans, (position, inf)) - 1
    return before >= 0 and position < spans[before][1]


def bare_line(text: str, start: int, reader: ClaimReader, *, whole: bool) -> Reading | None:
    """The value that is all there is on the line that begins at `start`.

    "3." may end a text that says nothing else, but as a last line it is a list that broke off.
    """
    opened = _BARE_OPENS.match(text, start)
    reading = reader.at(text, opened.end() if opened else start)
    if reading is None or not _LINE_ENDS.match(text, reading.end):
        return None
    if not whole and text[reading.end : reading.end + 1] == "." and text[reading.end - 1].isdigit():
        return None
    return reading


def says_nothing_after(text: str, position: int) -> bool:
    """Whether no word follows `position`."""
    return len(text.rstrip(_AFTER_LAST_WORD)) <= position


def _labelled(
    text: str, match: re.Match[str], reader: ClaimReader, last_line: int
) -> VerdictClaim | None:
    end = match.end()
    reading = reader.at(text, end)
    if reading is None:  # the value may stand alone on the next line
        gap = _BLANK_TO_NEXT_LINE.match(text, end)
        if gap is None or match["word"]:
            return None
        reading = bare_line(text, gap.end(), reader, whole=False)
        if reading is None:
            return None
    fills_line = _LINE_ENDS.match(text, reading.end) is not None
    signed = match["sign"] is not None or match["quote"] in _TAGS
    weak = not signed or match["label"] == "overall"
    if not signed and match["word"] is None and match["label"] in _NAMES:
        return None  # "Answer A" names an answer
    if weak and not fills_line:
        return None
    start = match.start()
    dash_or_minus = match["sign"] is None and text[end - 1].isalnum() and text[end] in "+-."
    if (
        dash_or_minus
        or reader.other_scale(match["scale"] or "")
        or introduced(text, start + 1)
        or goes_on(text, reading.end)
    ):
        return VerdictClaim(None, start, reading.end, final=False)
    final = fills_line and reading.end > last_line and text[start] == "\n" and not match["bullet"]
    return VerdictClaim(reading.verdict, start, reading.end, final=final)


def _last_line_start(text: str) -> int:
    """Where the last line that has a word on it begins."""
    return text.rfind("\n", 0, len(text.rstrip(_AFTER_LAST_WORD))) + 1


def _spelled(name: str) -> str:
    """A pattern of the ways in which people write `name`: ``tool_use``, ``Tool use``, tool-use."""
    return r"[ _-]?".join(map(re.escape, name.lower().split("_"))) + r"(?!_?[^\W_])"
