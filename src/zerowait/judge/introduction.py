"""What stands before a claim and decides whether it is the judge's own verdict on this response.

A judge also quotes the response, gives an example, recites its instructions or the scale, says what
would have been under a condition, and recalls what others got. A number that is introduced so is
not its verdict. Texts are folded, and every pattern looks at a bounded place.
"""

from __future__ import annotations

import re

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
